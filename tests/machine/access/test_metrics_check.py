"""Who reads which lines of the metrics of a server that does not make tokens."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry, Gauge

from hotplate.machine.access.metrics_check import REFUSAL, MetricsCheck, MetricsReaders
from hotplate.machine.access.metrics_page import answer
from hotplate.machine.access.metrics_reader import ALL, MetricsReader

LATE = 4e9
"""Unix seconds of a day that is far away."""


def reader(secret: str, organization: str, expires_at: float | None = LATE) -> MetricsReader:
    return MetricsReader(sha256(secret.encode()).hexdigest(), expires_at, organization)


READERS = MetricsReaders()
READERS.install(
    [
        reader("acmes", "acme"),
        reader("operators", ALL),
        reader("early", "acme", 1.0),
        reader("for-ever", "rival", None),
    ]
)
NOTHING: tuple[str, ...] = ()
EVERY = ("acme", "rival", "installation")
CHECK = MetricsCheck("cluster", "file", READERS)


def shown(check: MetricsCheck, **headers: str) -> tuple[int, tuple[str, ...]]:
    """The status, and whose lines are there."""
    registry = CollectorRegistry()
    for label in ("route", "deployment"):
        gauge = Gauge(f"by_{label}", "Now", [label], registry=registry)
        for name in ("acme/chat", "acme/chat#next", "rival/acme", "rival/chat@3/Inner"):
            gauge.labels(name).set(1)
    Gauge("disk_bytes", "Of the node", registry=registry).set(1)
    request = make_mocked_request(
        "GET", "/metrics", headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    given = answer(request, check, registry)
    assert isinstance(given.body, bytes)
    text = given.body.decode()
    if given.status != 200:
        assert set(json.loads(text)["error"]) == {"code", "message"}
        return given.status, NOTHING
    marks = {"acme": '="acme/', "rival": '="rival/', "installation": "disk_bytes 1.0"}
    return given.status, tuple(name for name, mark in marks.items() if mark in text)


@pytest.mark.parametrize(
    ("token", "status", "lines"),
    [
        ("acmes", 200, ("acme",)),
        ("for-ever", 200, ("rival",)),
        ("operators", 200, EVERY),
        ("cluster", 200, EVERY),
        ("file", 200, EVERY),
        ("early", 401, NOTHING),
        ("wrong", 401, NOTHING),
        ("", 401, NOTHING),
    ],
)
def test_a_token_shows_the_lines_of_its_organization(
    token: str, status: int, lines: tuple[str, ...]
) -> None:
    assert shown(CHECK, Authorization=f"Bearer {token}") == (status, lines)


def test_it_may_come_as_the_client_sends_it() -> None:
    assert shown(CHECK, X_YATAI_API_TOKEN="acmes") == (200, ("acme",))


def test_an_operator_reads_one_organization_s_and_nobody_another_s() -> None:
    for token in ("operators", "cluster"):
        acting = {"Authorization": f"Bearer {token}", "X_Hotplate_Organization": "rival"}
        assert shown(CHECK, **acting) == (200, ("rival",))
    acmes = {"Authorization": "Bearer acmes"}
    assert shown(CHECK, **acmes, X_Hotplate_Organization="acme") == (200, ("acme",))
    assert shown(CHECK, **acmes, X_Hotplate_Organization="rival") == (404, NOTHING)
    assert shown(CHECK, **acmes, X_Hotplate_Organization="no-such") == (404, NOTHING)


def test_it_is_open_where_the_server_was_started_so() -> None:
    assert shown(MetricsCheck("cluster", None, READERS)) == (200, EVERY)
    assert shown(MetricsCheck("", "", READERS)) == (200, EVERY)
    assert shown(MetricsCheck("cluster", "", MetricsReaders())) == (401, NOTHING)


def test_the_refusal_says_what_to_do() -> None:
    assert "scope 'metrics'" in REFUSAL
    assert "hotplate token create" in REFUSAL
