"""`hotplate org`, `user` and `token`, as an operator and an admin type them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from hotplate.platform.commands.tokens import expiry
from hotplate.platform.errors import BadSetting
from tests.platform.commands.conftest import Hotplate
from tests.support.control_plane.cloud import Cloud


async def test_an_operator_sets_up_a_team_and_its_admin_goes_on(
    hotplate: Hotplate, cloud: Cloud
) -> None:
    assert (await hotplate("org", "create", "umbrella", "--description", "rain"))[0] == 0
    for_umbrella = ("--organization", "umbrella")
    status, url, _ = await hotplate(
        "user", "add", "eve", "--email", "eve@umbrella.example", "--role", "admin", *for_umbrella
    )
    assert status == 0
    link = url.strip().partition("/login?link=")[2]
    cloud.http.headers.clear()
    origin = str(cloud.server.make_url("/")).rstrip("/")
    async with cloud.http.post("/login", data={"link": link}) as answer:
        assert answer.status == 200
    cloud.http.headers["Origin"] = origin
    made = await cloud.call("POST", "/api/v1/api_tokens", {"name": "laptop", "scopes": []})
    eve = made["token"]
    status, out, _ = await hotplate("user", "--json", token=eve)
    assert [one["name"] for one in json.loads(out)["items"]] == ["eve"]
    await hotplate("user", "add", "bob", "--email", "b@u.example", "--role", "developer", token=eve)
    status, out, _ = await hotplate("user", "set", "bob", "--role", "endpoint-user", token=eve)
    assert " ".join(out.splitlines()[-1].split()) == "bob b@u.example endpoint-user never"
    status, out, _ = await hotplate("org", token=eve)
    assert [line.split()[0] for line in out.splitlines()] == ["name", "umbrella"]
    assert (await hotplate("user", "link", "bob", token=eve))[1].startswith(origin + "/login?link=")
    assert (await hotplate("user", "remove", "bob", token=eve))[:2] == (
        0,
        "bob is no longer a member\n",
    )
    assert (await hotplate("user", "operator", "eve", "on"))[1] == "eve is now an operator\n"
    assert (await hotplate("user", "operator", "eve", "off"))[0] == 0
    assert (await hotplate("org", "delete", "umbrella"))[1] == "organization umbrella is deleted\n"
    assert (await hotplate("org", token=eve))[0] == 1


async def test_a_token_is_printed_alone_and_revoked_by_its_uid(
    hotplate: Hotplate, cloud: Cloud
) -> None:
    status, secret, _ = await hotplate(
        "token", "create", "ci", "--scope", "read_cluster", "--scope", "write_cluster",
        "--expires", "30d", token=cloud.token,
    )  # fmt: skip
    assert (status, len(secret.split())) == (0, 1)
    cloud.http.headers["X-YATAI-API-TOKEN"] = secret.strip()
    await cloud.call("GET", "/api/v2/deployments")
    _, out, _ = await hotplate("token", "--json", token=cloud.token)
    made = next(one for one in json.loads(out)["items"] if one["name"] == "ci")
    _, out, _ = await hotplate("token", token=cloud.token)
    assert f"{made['uid']}  ci" in " ".join(out.splitlines()) or made["uid"] in out
    assert (await hotplate("token", "revoke", made["uid"], token=cloud.token))[1] == (
        "token ci is revoked\n"
    )
    service = ("token", "create", "robot", "--service", "--role", "developer", "--json")
    _, out, _ = await hotplate(*service, token=cloud.token)
    assert json.loads(out)["is_organization_token"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("org", "create"), "write hotplate org [NAME]"),
        (("org", "create", "Acme"), "is not an organization's name"),
        (("org", "delete", "nowhere"), "'nowhere' does not exist"),
        (("user", "add", "bob"), "needs --email and --role"),
        (("user", "set", "bob"), "changes nothing"),
        (("user", "set", "bob", "--role", "admin"), "'bob' is not a member"),
        (("user", "operator", "bob", "maybe"), "write hotplate user"),
        (("token", "create", "x", "--scope", "reed_cluster"), "did you mean 'read_cluster'"),
        (("token", "create", "x", "--expires", "soon"), "--expires soon is neither"),
        (("token", "create", "x", "--expires", "2020-01-01"), "is past"),
        (("token", "create", "x", "--service", "--role", "boss"), "there is no 'boss'"),
        (("token", "create", "x", "--service"), "role: there is none; it is one of admin, dev"),
        (("token", "revoke", "x"), "'x' does not exist"),
    ],
)
async def test_what_cannot_be_done_is_one_sentence(
    hotplate: Hotplate, words: tuple[str, ...], said: str
) -> None:
    status, out, err = await hotplate(*words)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err


@pytest.mark.parametrize(
    ("text", "said"),
    [("30d", "2026-01-31T00:00:00+00:00"), ("12h", "2026-01-01T12:00:00+00:00")],
)
def test_a_span_counts_from_now(text: str, said: str) -> None:
    now: Any = datetime(2026, 1, 1, tzinfo=UTC)
    assert expiry(text, now) == said
    with pytest.raises(BadSetting, match="neither a span"):
        expiry("0d", now)
