"""Who changed what: a line in the transaction of each change, and one for each kind of refusal."""

from __future__ import annotations

import asyncio
import contextvars
import json
from datetime import timedelta
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from hotplate.platform.api.web.refused_tries import LINES, RefusedTries
from hotplate.platform.cli import main
from hotplate.platform.store.audit import ACTOR, TEXT_CHARACTERS, Actor, AuditFilter
from hotplate.platform.store.config_changes import config_changes
from hotplate.platform.store.parts import Store
from hotplate.platform.upkeep.audit_sweep import forget_old
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.patience import until

ROOT = "/api/v1/hotplate/audit"


async def lines(cloud: Cloud, query: str = "") -> list[Any]:
    found: list[Any] = (await cloud.call("GET", f"{ROOT}?{query}"))["items"]
    return found


async def test_changes_are_told_with_who_where_and_what(cloud: Cloud) -> None:
    await cloud.push_bento()
    cloud.http.headers["X-Request-Id"] = "r-1"
    await cloud.deploy("echo", envs=[{"name": "PASSWORD", "value": "hunter2"}])
    (line,) = await lines(cloud, "action=deployment")
    assert line["changes"]["envs"] == ["PASSWORD"]
    assert "hunter2" not in json.dumps(await lines(cloud))
    del line["id"], line["at"], line["changes"]
    assert line == {
        "actor": "ada",
        "token": "laptop",
        "organization": "acme",
        "action": "deployment.create",
        "object": "echo",
        "outcome": "done",
        "address": "127.0.0.1",
        "request_id": "r-1",
        "count": 1,
    }


async def test_every_kind_of_change_has_a_line(cloud: Cloud) -> None:
    await cloud.push_bento()
    await cloud.deploy("echo")
    token = await cloud.call("POST", "/api/v1/api_tokens", {"name": "web", "scopes": ["endpoint"]})
    await cloud.call("DELETE", f"/api/v1/api_tokens/{token['uid']}")
    member = "/api/v1/hotplate/organizations/acme/members/bob"
    await cloud.call("PUT", member, {"email": "b@x.com", "role": "developer"})
    await cloud.call("PUT", member, {"role": "admin"})
    await cloud.call("POST", "/api/v1/hotplate/users/bob/link", {})
    await cloud.call("DELETE", member)
    secret = {"type": "env", "items": [{"key": "TOKEN", "value": "s3cret"}], "stage": "runtime"}
    await cloud.call("POST", "/api/v1/org_secrets", {"name": "hf", "content": secret})
    await cloud.call("DELETE", "/api/v1/org_secrets/hf")
    await cloud.call("POST", "/api/v2/deployments/echo/terminate", {})
    await cloud.call("DELETE", "/api/v2/deployments/echo")
    actions = [line["action"] for line in await lines(cloud)]
    assert actions[::-1] == [
        "bento_repository.create",
        "bento.create",
        "bento.upload",
        "deployment.create",
        "token.create",
        "token.revoke",
        "member.add",
        "member.update",
        "link.create",
        "member.remove",
        "secret.create",
        "secret.delete",
        "deployment.terminate",
        "deployment.delete",
    ]
    assert "s3cret" not in json.dumps(await lines(cloud))


async def test_pages_go_on_from_the_last_line(cloud: Cloud) -> None:
    for number in range(5):
        await cloud.call(
            "POST", "/api/v1/api_tokens", {"name": f"t{number}", "scopes": ["endpoint"]}
        )
    first = await cloud.call("GET", f"{ROOT}?count=2")
    assert (len(first["items"]), first["total"]) == (2, 5)
    rest = await lines(cloud, f"before={first['items'][-1]['id']}")
    assert [line["object"] for line in rest] == ["t2", "t1", "t0"]
    with pytest.raises(Refused, match=r"400.*before: 'x' is not the id"):
        await lines(cloud, "before=x")


async def test_another_organization_s_lines_are_the_operator_s_to_see(cloud: Cloud) -> None:
    await cloud.call("POST", "/api/v1/api_tokens", {"name": "web", "scopes": ["endpoint"]})
    async with Cloud(cloud.server, cloud.store, "rival", name="eve") as eve:
        assert await lines(eve) == []
    root = Cloud(cloud.server, cloud.store, "default", name="root", operator=True)
    async with root as operator:
        assert [line["organization"] for line in await lines(operator)] == ["acme"]
        operator.http.headers["X-Hotplate-Organization"] = "default"
        assert await lines(operator) == []


async def test_refusals_of_a_minute_that_are_alike_are_one_line(cloud: Cloud) -> None:
    async def refused() -> list[Any]:
        async with Cloud(cloud.server, cloud.store, "default", name="r", operator=True) as operator:
            return [line for line in await lines(operator) if line["outcome"] == "refused"]

    for _ in range(4):
        headers = {"X-YATAI-API-TOKEN": "wrong"}
        async with cloud.http.get("/api/v1/current_org", headers=headers) as answer:
            assert answer.status == 401
    async with Cloud(cloud.server, cloud.store, name="bob", scopes=["read_cluster"]) as bob:
        for _ in range(3):
            with pytest.raises(Refused, match="403"):
                await bob.call("GET", "/api/v1/bentos")

    async def told() -> bool:
        counts = {(line["action"], line["actor"]): line["count"] for line in await refused()}
        return counts == {("login.refused", ""): 4, ("access.refused", "bob"): 3}

    await until(told)


async def test_who_tries_two_things_or_in_two_organizations_has_a_line_for_each(
    cloud: Cloud, store: Store
) -> None:
    rival = store.identities.ensure_user("rival", "ada", "").organization
    member = "/api/v1/hotplate/organizations/acme/members/ada"
    async with Cloud(cloud.server, store, name="bob", scopes=["read_cluster"]) as bob:
        other = store.tokens.add_token(bob.user, "other", scopes=["read_cluster"])
        there = store.identities.ensure_user(rival.name, "bob", "")
        elsewhere = store.tokens.add_token(there, "elsewhere", scopes=["read_cluster"])
        for method, path, token in (
            ("GET", "/api/v1/bentos", bob.token),
            ("DELETE", member, bob.token),
            ("DELETE", member, other),
            ("DELETE", member, other),
            ("GET", "/api/v1/bentos", elsewhere),
        ):
            bob.http.headers["X-YATAI-API-TOKEN"] = token
            with pytest.raises(Refused, match="403"):
                await bob.call(method, path)

    async def told() -> bool:
        found, _ = await store.run(store.audit.page, AuditFilter(action="access.refused"), 100)
        return {(line.organization, line.token, line.object, line.count) for line in found} == {
            ("acme", "laptop", "GET /api/v1/bentos", 1),
            ("acme", "laptop", f"DELETE {member}", 1),
            ("acme", "other", f"DELETE {member}", 2),
            ("rival", "elsewhere", "GET /api/v1/bentos", 1),
        }

    await until(told)


async def test_sign_ins_are_told_the_good_and_the_refused(cloud: Cloud) -> None:
    cloud.http.headers.clear()
    cloud.http.headers["Origin"] = str(cloud.server.make_url("/")).rstrip("/")
    async with cloud.http.post("/login", data={"token": "wrong"}) as answer:
        assert answer.status == 401
    async with cloud.http.post("/login", data={"token": cloud.token}) as answer:
        assert answer.status == 200
    codes = [(await cloud.call("GET", "/api/v1/auth/code"))["code"] for _ in range(2)]
    for code, given in zip(codes, ("approve", "deny"), strict=True):
        async with cloud.http.post("/api_tokens", data={"code": code, "answer": given}) as answer:
            assert answer.status == 200
    told = [(line["action"], line["actor"], line["object"]) for line in await lines(cloud)]
    login = f"login-{codes[0][:8]}"
    assert told[::-1] == [
        ("login.ok", "ada", "ada"),
        ("login.approved", "ada", login),
        ("token.create", "ada", login),
        ("login.denied", "ada", codes[1][:8]),
    ]
    root = Cloud(cloud.server, cloud.store, "default", name="root", operator=True)
    async with root as operator:

        async def refused() -> bool:
            found = await lines(operator, "action=login.refused")
            return [(line["object"], line["outcome"]) for line in found] == [
                ("POST /login", "refused")
            ]

        await until(refused)


async def test_the_command_shows_the_same_lines(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("web", "phone"):
        await cloud.call("POST", "/api/v1/api_tokens", {"name": name, "scopes": ["endpoint"]})
    asked = ["audit", "--endpoint", str(cloud.server.make_url("/")), "--token", cloud.token]
    assert await asyncio.to_thread(main, [*asked, "--count", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == await cloud.call("GET", f"{ROOT}?count=1")
    first = str(answer["items"][0]["id"])
    filters = ["--before", first, "--actor", "ada", "--action", "token.create"]
    filters += ["--since", "2020-01-01", "--until", "2999-01-01"]
    assert await asyncio.to_thread(main, [*asked, *filters]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert ("token.create" in line, "web" in line, "phone" in line) == (True, True, False)
    assert await asyncio.to_thread(main, [*asked, "--since", "noon"]) == 1
    assert "since: 'noon' is not a time" in capsys.readouterr().err


async def test_no_flood_of_refusals_hides_another_caller_s(store: Store) -> None:
    tries = RefusedTries(store.audit)
    for number in range(LINES + 5):
        ACTOR.set(Actor(address=f"10.0.0.{number}"))
        for _ in range(3):  # before any of them is written
            tries.note("login.refused", make_mocked_request("GET", "/api/v1/bentos"), "no")
    ACTOR.set(Actor("bob", organization="acme"))
    tries.note("access.refused", make_mocked_request("GET", "/api/v1/bentos"), "no")
    ACTOR.set(None)

    async def written() -> bool:
        found, _ = await store.run(store.audit.page, AuditFilter(), 100)
        counts = [(line.actor, line.count) for line in found]
        return counts.count(("", 3)) == LINES and counts.count(("bob", 1)) == 1

    await until(written)


async def test_a_request_id_of_any_bytes_is_kept_as_far_as_it_can_be(cloud: Cloud) -> None:
    address = (cloud.server.host, cloud.server.port)
    reader, writer = await asyncio.open_connection(*address)
    body = b'{"name": "web", "scopes": ["endpoint"]}'
    writer.write(
        b"POST /api/v1/api_tokens HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"X-YATAI-API-TOKEN: %b\r\nX-Request-Id: a\xff%b\r\nContent-Length: %d\r\n\r\n%b"
        % (cloud.token.encode(), b"x" * 1000, len(body), body)
    )
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await writer.wait_closed()
    (line,) = await lines(cloud)
    assert line["request_id"] == "a?" + "x" * (TEXT_CHARACTERS - 2)


async def test_a_new_organization_does_not_see_the_lines_of_the_one_that_had_its_name(
    cloud: Cloud, store: Store
) -> None:
    await cloud.call("POST", "/api/v1/api_tokens", {"name": "web", "scopes": ["endpoint"]})
    store.organizations.delete("acme", force=True)
    store.organizations.finish_deletions()
    async with Cloud(cloud.server, store, name="eve") as eve:
        assert await lines(eve) == []
        assert await lines(eve, "since=2020-01-01") == []
    root = Cloud(cloud.server, store, "default", name="root", operator=True)
    async with root as operator:
        assert [line["object"] for line in await lines(operator)] == ["web"], "they stay"


async def test_what_is_done_about_a_roll_out_is_told_with_its_own_word(cloud: Cloud) -> None:
    await cloud.push_bento()
    await cloud.deploy("echo")
    for action in ("restart", "undo"):
        body = {"action": action} | ({"to": 1} if action == "undo" else {})
        await cloud.call("POST", "/api/v1/hotplate/deployments/echo/rollout", body)
    undo, restart = await lines(cloud, "action=rollout")
    assert (restart["action"], restart["changes"]) == (
        "rollout.restart",
        {"revision": 2, "bento": "echo:v1"},
    )
    assert (undo["action"], undo["changes"]) == (
        "rollout.undo",
        {"revision": 3, "bento": "echo:v1"},
    )


def test_lines_go_when_they_are_old_and_not_before(store: Store) -> None:
    store.audit.refuse(Actor("ada"), "access.refused", "GET /", {})
    (line,) = store.audit.page(AuditFilter(), 10)[0]
    assert store.audit.forget(line.at) == 0
    assert store.audit.forget(line.at + timedelta(microseconds=1)) == 1
    assert store.audit.page(AuditFilter(), 10) == ([], 0)


@pytest.mark.parametrize(("days", "left"), [(400.0, 1), (-1.0, 0)])
async def test_they_are_swept_by_the_number_of_days(store: Store, days: float, left: int) -> None:
    store.audit.refuse(Actor("ada"), "access.refused", "GET /", {})
    sweeping = asyncio.create_task(forget_old(store.audit, days))
    await asyncio.sleep(0)
    (_, total) = await store.audit.run(store.audit.page, AuditFilter(), 10)  # behind the sweep
    sweeping.cancel()
    assert total == left


def test_a_change_that_is_undone_leaves_no_line(store: Store) -> None:
    def work() -> None:
        ACTOR.set(Actor("ada", organization="acme"))
        with pytest.raises(ZeroDivisionError), store.database.together():
            store.organizations.create("umbrella")
            _ = 1 / 0
        store.organizations.create("parasol")

    contextvars.copy_context().run(work)
    store.organizations.create("hat")  # by nobody
    found, total = store.audit.page(AuditFilter(), 10)
    assert ([line.object for line in found], total) == (["parasol"], 1)


def test_only_what_differs_is_told_and_no_value_of_a_variable() -> None:
    before = {"envs": [{"name": "A", "value": "1"}], "services": {"Echo": {"scaling": {"max": 1}}}}
    after = {
        "envs": [{"name": "A", "value": "2"}],
        "services": {"Echo": {"scaling": {"max": 3}, "envs": [{"name": "B", "value": "x"}]}},
    }
    assert config_changes(before, after) == {
        "envs": ["A"],
        "services.Echo.envs": ["B"],
        "services.Echo.scaling.max": 3,
    }
    assert config_changes(after, after) == {}
