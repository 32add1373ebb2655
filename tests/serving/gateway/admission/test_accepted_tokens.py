"""Tokens of organizations, which a table has once for all its routes."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest

from hotplate.serving.gateway.admission.accepted_tokens import USE_S, AcceptedTokens
from hotplate.serving.gateway.protocol.headers import REPLICA_KEY
from hotplate.serving.gateway.protocol.routes import AcceptedToken, RouteTable
from tests.support.gateway.kitchen import Kitchen


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def test_a_token_is_good_for_its_organization_its_deployment_and_its_time() -> None:
    tokens = AcceptedTokens()
    tokens.install(
        {
            "acme": (
                AcceptedToken("all"),
                AcceptedToken("echo's", deployment="echo"),
                AcceptedToken("brief", expires_at=100.0),
            ),
            "rival": (AcceptedToken("theirs"),),
        }
    )
    assert tokens.admits("acme", "chat", "all", 0.0)
    assert tokens.admits("acme", "echo", "echo's", 0.0)
    assert not tokens.admits("acme", "chat", "echo's", 0.0)
    assert tokens.admits("acme", "chat", "brief", 99.9)
    assert not tokens.admits("acme", "chat", "brief", 100.0)
    assert not tokens.admits("acme", "chat", "theirs", 0.0)
    assert not tokens.admits("nowhere", "chat", "all", 0.0)


def test_one_may_be_good_for_several_deployments() -> None:
    tokens = AcceptedTokens()
    both = AcceptedToken("key", deployment="one"), AcceptedToken("key", deployment="other")
    tokens.install({"acme": both})
    for name, good in (("one", True), ("other", True), ("third", False)):
        assert tokens.admits("acme", name, "key", 0.0) is good


def test_it_is_said_of_each_that_it_was_used_but_not_every_time() -> None:
    tokens = AcceptedTokens()
    tokens.install({"acme": (AcceptedToken("a"), AcceptedToken("b"))})
    tokens.admits("acme", "echo", "a", 0.0)
    tokens.admits("acme", "echo", "wrong", 0.0)
    assert tokens.take_used() == ("a",)
    tokens.admits("acme", "echo", "a", USE_S - 1)
    assert tokens.take_used() == ()
    tokens.admits("acme", "echo", "a", USE_S)
    assert tokens.take_used() == ("a",)


async def table(kitchen: Kitchen, *tokens: AcceptedToken, **changes: Any) -> None:
    await kitchen.serve(tokens_of="acme", replicas=(kitchen.replica(),), **changes)
    routes = (kitchen.route,)
    # Through JSON, as it comes from the control plane.
    made = RouteTable(kitchen.gateway.version + 1, routes, {"acme": tokens})
    await kitchen.gateway.apply(RouteTable.from_json(made.to_json()))


async def test_one_that_is_revoked_is_refused_with_the_next_table_on_a_kept_connection(
    kitchen: Kitchen,
) -> None:
    await table(kitchen, AcceptedToken(digest("one")), AcceptedToken(digest("two")))
    caller = await kitchen.caller()
    for _ in range(3):  # the same head comes again, which is remembered
        assert (await caller.ask("/x", authorization="Bearer one")).status == 200
    await table(kitchen, AcceptedToken(digest("two")))
    assert (await caller.ask("/x", authorization="Bearer one")).status == 401
    assert (await caller.ask("/x", authorization="Bearer two")).status == 200
    assert "authorization" not in kitchen.backend.requests[-1].headers


async def test_one_that_expires_is_refused_without_another_table(kitchen: Kitchen) -> None:
    soon = datetime.now(UTC).timestamp() + 0.5
    await table(kitchen, AcceptedToken(digest("brief"), expires_at=soon))
    caller = await kitchen.caller()
    answers = []
    while datetime.now(UTC).timestamp() < soon + 0.05:
        answers.append((await caller.ask("/x", authorization="Bearer brief")).status)
    assert answers[0] == 200
    assert (await caller.ask("/x", authorization="Bearer brief")).status == 401


async def test_a_route_of_an_organization_without_tokens_lets_nobody_in(kitchen: Kitchen) -> None:
    await table(kitchen)
    assert (await kitchen.ask("/x", authorization="Bearer any")).status == 401
    assert (await kitchen.ask("/x")).status == 401


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer   "])
async def test_a_replica_s_key_is_for_gateways_alone_where_anybody_may_call(
    kitchen: Kitchen, scheme: str
) -> None:
    await kitchen.serve(replicas=(kitchen.replica(),))
    caller = await kitchen.caller()
    for sent, passed_on in ((f"{scheme}{REPLICA_KEY}a.b", None), ("Bearer mine", "Bearer mine")):
        assert (await caller.ask("/x", authorization=sent)).status == 200
        assert kitchen.backend.requests[-1].headers.get("authorization") == passed_on
