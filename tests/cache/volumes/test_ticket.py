"""A ticket is what the control plane signed, for whom it signed it, or nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from hotplate.cache.errors import TicketRefused
from hotplate.cache.volumes.ticket import (
    MOST_CHARACTERS,
    Ticket,
    Use,
    VolumeModel,
    key_of,
    opened,
    signed,
)

KEY = key_of("the cluster's token")
TICKET = Ticket(
    namespace="hotplate-t-acme",
    service_account="h-hello-1-hello",
    organization="acme",
    deployment="hello",
    revision=1,
    service="Hello",
    use=Use.REPLICA,
    bento="b" * 64,
    environment="e" * 64,
    models=(VolumeModel("bert", "v1", "0" * 64),),
)
BUILD = replace(
    TICKET,
    use=Use.BUILD,
    environment="",
    models=(),
    note="environments/x",
    about={"interpreter": "3.11", "bentos": ["hello:1"]},
)


@pytest.mark.parametrize("ticket", [TICKET, BUILD])
def test_it_comes_back_as_it_was_signed(ticket: Ticket) -> None:
    assert opened(signed(ticket, KEY), KEY) == ticket


def test_the_text_is_as_agreed() -> None:
    key = hmac.new(b"the cluster's token", b"hotplate.dev/ticket", hashlib.sha256).digest()
    content, signature = (
        base64.urlsafe_b64decode(part + "==") for part in signed(TICKET, KEY).split(".")
    )
    assert signature == hmac.new(key, content, hashlib.sha256).digest()
    assert json.loads(content) == {**asdict(TICKET), "models": [asdict(TICKET.models[0])]}
    assert signed(TICKET, KEY) == signed(replace(TICKET), KEY)


def test_it_names_all_that_the_volume_shows() -> None:
    assert TICKET.manifests == {"b" * 64, "e" * 64, "0" * 64}
    assert BUILD.manifests == {"b" * 64}


def _with_signature(content: Any) -> str:
    data = json.dumps(content).encode()
    signature = hmac.new(KEY, data, hashlib.sha256).digest()
    return ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (data, signature)
    )


FORGED = {
    "nothing": ("", "has no ticket"),
    "no signature": (signed(TICKET, KEY).partition(".")[0], "not signed"),
    "another key": (signed(TICKET, key_of("another token")), "not signed"),
    "not base64": ("a*b.c*d", "not signed"),
    "not ASCII": ("ä.ö", "not signed"),
    "three parts": (signed(TICKET, KEY) + ".x", "not signed"),
    "too long": ("a" * (MOST_CHARACTERS + 1), f"limit {MOST_CHARACTERS}"),
    "no object": (_with_signature([]), "update the agent"),
    "a word that is unknown": (_with_signature({**asdict(TICKET), "more": 1}), "update the agent"),
    "no digest": (_with_signature({**asdict(TICKET), "bento": "../../etc"}), "update the agent"),
    "for nobody": (_with_signature({**asdict(TICKET), "namespace": ""}), "update the agent"),
    "a model that leads out": (
        _with_signature(
            {**asdict(TICKET), "models": [{"name": "..", "version": "1", "manifest": "0" * 64}]}
        ),
        "update the agent",
    ),
    "a build without a note": (_with_signature({**asdict(BUILD), "note": ""}), "update the agent"),
}


@pytest.mark.parametrize(("text", "reason"), FORGED.values(), ids=FORGED)
def test_anything_else_is_refused_and_nothing_of_it_shown(text: str, reason: str) -> None:
    with pytest.raises(TicketRefused, match=reason) as refused:
        opened(text, KEY)
    assert "acme" not in str(refused.value)


def test_every_changed_character_is_noticed() -> None:
    text = signed(TICKET, KEY)
    content, _, signature = text.partition(".")
    for index in range(0, len(content), 7):
        other = "A" if content[index] != "A" else "B"
        with pytest.raises(TicketRefused):
            opened(f"{content[:index]}{other}{content[index + 1 :]}.{signature}", KEY)
