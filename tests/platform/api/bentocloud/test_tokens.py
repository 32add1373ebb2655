"""Tokens that users make, and what each is good for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hotplate.platform.control_plane import keep_token
from hotplate.platform.errors import CannotStart
from hotplate.platform.spec.scopes import API, ENDPOINT
from hotplate.platform.store.identities import ADMIN
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import ORGANIZATION
from hotplate.platform.store.tokens import CALLERS, token_digest
from hotplate.serving.gateway.protocol.routes import AcceptedToken
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController

TOKENS = "/api/v1/api_tokens"


async def make(cloud: Cloud, name: str = "web", **fields: Any) -> Any:
    return await cloud.call("POST", TOKENS, {"name": name, "scopes": ["endpoint"], **fields})


async def test_when_tokens_of_any_scope_end_is_known(cloud: Cloud) -> None:
    first, last = (datetime.now(UTC) + timedelta(days) for days in (7, 9))
    await make(cloud, "ci", scopes=["api"], expired_at=str(last))
    await make(cloud, "web", expired_at=str(first))
    await make(cloud, "ever", scopes=["api"])
    assert cloud.store.tokens.ends() == {"acme": (first.timestamp(), last.timestamp())}


async def test_one_for_callers_is_shown_once_and_let_in_by_gateways(
    cloud: Cloud, controller: FakeController
) -> None:
    assert cloud.store.tokens.accepted() == {}, "one of the API is none"
    made = await make(cloud, description="the shop")
    assert (made["name"], made["description"], made["scopes"]) == ("web", "the shop", ["endpoint"])
    assert (made["is_api_token"], made["is_expired"], made["expired_at"]) == (False, False, None)
    accepted = AcceptedToken(token_digest(made["token"]))
    assert cloud.store.tokens.accepted() == {"acme": (accepted,)}
    shown = await cloud.call("GET", f"{TOKENS}/{made['uid']}")
    listed = await cloud.call("GET", f"{TOKENS}?start=0&count=100&search=we")
    assert listed["items"] == [shown]
    assert shown.get("token") is None
    await cloud.call("DELETE", f"{TOKENS}/{made['uid']}")
    assert cloud.store.tokens.accepted() == {}
    assert controller.tokens_changes == 2
    with pytest.raises(Refused, match="404"):
        await cloud.call("GET", f"{TOKENS}/{made['uid']}")


async def test_one_without_a_scope_is_for_the_api(cloud: Cloud) -> None:
    made = await cloud.call("POST", TOKENS, {"name": "ci", "scopes": None})
    assert (made["scopes"], made["is_api_token"]) == (["api"], True)
    cloud.http.headers["X-YATAI-API-TOKEN"] = made["token"]
    assert (await cloud.call("GET", "/api/v1/auth/current"))["name"] == "ada"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"scopes": ["endpoints"]},
            r"scopes\[0\]: there is no 'endpoints'; did you mean 'endpoint'",
        ),
        ({"scopes": ["api", "endpoint"]}, "scopes: a token is for calls of deployments"),
        ({"scopes": ["endpoint:"]}, "scopes.0.: there is no 'endpoint:'"),
        ({"scopes": [7]}, r"scopes\[0\]: 7 is not a string"),
        ({"expired_at": "soon"}, "expired_at: 'soon' is not a time in ISO 8601"),
        ({"expired_at": "2020-01-01 00:00:00"}, "expired_at: .* is past, it is 20.* here"),
        ({"name": ""}, "name: '' is not a string"),
        ({"name": "x" * 201}, "name: it has 201 characters, 200 are the most"),
    ],
)
async def test_what_cannot_be_made_is_told(cloud: Cloud, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=f"400.*{said}"):
        await make(cloud, **fields)
    listed = await cloud.call("GET", TOKENS)
    assert [token["name"] for token in listed["items"]] == ["laptop"]


async def test_names_are_taken_once(cloud: Cloud) -> None:
    await make(cloud)
    with pytest.raises(Refused, match=r"409.*'web': a token of that name exists"):
        await make(cloud)


async def test_another_organization_s_are_not_there(cloud: Cloud) -> None:
    made = await make(cloud)
    async with Cloud(cloud.server, cloud.store, "other") as other:
        assert [t["name"] for t in (await other.call("GET", TOKENS))["items"]] == ["laptop"]
        for method in ("GET", "DELETE"):
            with pytest.raises(Refused, match="404"):
                await other.call(method, f"{TOKENS}/{made['uid']}")
    assert (await cloud.call("GET", f"{TOKENS}/{made['uid']}"))["name"] == "web"


async def test_what_expires_says_when(cloud: Cloud) -> None:
    """A time without a zone, as the client sends it, is one of this machine's clock."""
    ends = datetime.now().replace(microsecond=0) + timedelta(hours=1)
    made = await make(cloud, expired_at=str(ends))
    assert datetime.fromisoformat(made["expired_at"]) == ends.astimezone(UTC)
    (accepted,) = cloud.store.tokens.accepted()["acme"]
    assert accepted.expires_at == ends.timestamp()


def test_the_operator_s_two_lie_in_files_and_are_good_for_one_thing_each(store: Store) -> None:
    keep_token(store, ADMIN, "deploys", API)
    keep_token(store, CALLERS, "calls", ENDPOINT)
    keep_token(store, CALLERS, "calls anew", ENDPOINT)
    tenant = store.identities.ensure_user(ORGANIZATION, ADMIN, "").organization.id
    assert store.tokens.accepted() == {ORGANIZATION: (AcceptedToken(token_digest("calls anew")),)}
    assert {token.name: token.scopes for token in store.tokens.tokens(tenant)} == {
        ADMIN: (API,),
        CALLERS: (ENDPOINT,),
    }
    with pytest.raises(CannotStart, match="'admin' has this secret too, and is for something else"):
        keep_token(store, CALLERS, "deploys", ENDPOINT)


async def test_the_operator_s_are_not_deleted(store: Store, cloud: Cloud) -> None:
    keep_token(store, CALLERS, "calls", ENDPOINT)
    async with Cloud(cloud.server, store, ORGANIZATION) as operator:
        (token,) = [
            t for t in (await operator.call("GET", TOKENS))["items"] if t["name"] == CALLERS
        ]
        with pytest.raises(Refused, match=r"409.*kept in the data directory"):
            await operator.call("DELETE", f"{TOKENS}/{token['uid']}")
