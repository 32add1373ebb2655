"""What no client of ours sends: every route of the application's own router, and every field of a
good call, with what makes no sense there. It is refused in one sentence, and nothing is changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from yarl import URL

from hotplate.platform.store.parts import Store
from tests.platform.api.hotplate.test_audited_routes import CHANGES, SECRET
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController

LONGEST = 500
"""Characters of a sentence: it repeats only the beginning of what was sent."""
NAMES = ("..", "%2e%2e%2fetc%2fpasswd", "a%00b", "%ff", "a" * 5_000, "%20")
"""Of longer ones not even the request is read: test_listener.py."""
THERE = {"name": "echo", "version": "v1", "organization": "default", "cluster": "default"}
BODIES = {
    "deep lists": b"[" * 10_000 + b"]" * 10_000,
    "deep objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "bytes": b'{"name": "\xff\xfe"}',
    "half a surrogate": rb'{"name": "\ud800"}',
    "a NUL": rb'{"name": "a\u0000b"}',
    "no number": b'{"weight": NaN}',
    "endless": b'{"weight": 1e999}',
    "5000 digits": b'{"weight": ' + b"9" * 5_000 + b"}",
    "a list": b"[]",
    "cut": b'{"name": ',
}
WRONG: tuple[object, ...] = (
    False,
    -1,
    1.5,
    2**63,
    "a\0b",
    "x" * 10_000,
    [[None]],
    {"a": {"b": []}},
)
DEPLOYMENT = {
    "name": "new",
    "bento": "echo:v1",
    "dev": False,
    "access_authorization": False,
    "envs": [{"name": "A", "value": "b"}],
    "secrets": ["hf"],
    "labels": [{"key": "a", "value": "b"}],
    "services": {
        "Echo": {
            "instance_type": "cpu.1",
            "envs": [{"name": "A", "value": "b"}],
            "deployment_strategy": "Recreate",
            "scaling": {
                "min_replicas": 1,
                "max_replicas": 2,
                "policy": {"scale_up_stabilization_window": 1, "scale_down_behavior": "fast"},
            },
            "config_overrides": {"traffic": {"timeout": 3, "concurrency": 4}},
        }
    },
    "canary": {
        "route_type": "header",
        "route_by": "x-user",
        "versions": {"next": {"bento": "echo:v2", "weight": 10, "envs": [], "secrets": []}},
    },
}
GOOD = [
    *((*route, change.body, change.path) for route, change in CHANGES.items() if change.body),
    ("POST", "/api/v2/deployments", DEPLOYMENT, None),
    ("POST", "/api/v1/hotplate/deployments/{name}/rollout", {"action": "undo", "to": 1}, None),
    (
        "POST",
        "/api/v1/api_tokens",
        {
            "name": "n",
            "scopes": ["api"],
            "description": "",
            "expired_at": "2090-01-01",
            "service": True,
            "role": "admin",
        },
        None,
    ),
]


@pytest.fixture
async def operator(cloud: Cloud, controller: FakeController) -> AsyncIterator[Cloud]:
    """Of an organization with one of everything."""
    async with Cloud(cloud.server, cloud.store, "default", name="admin", operator=True) as made:
        cloud.store.identities.ensure_user("default", "bob", "bob@x.com")
        cloud.store.identities.ensure_user("rival", "rob", "rob@x.com")
        await made.push_bento()
        await made.push_bento(version="v2")
        await made.register("model", "echo", "v1")
        await made.deploy()
        await made.make_code_space("space")
        await controller.settled()
        await made.call("POST", "/api/v1/org_secrets", {"name": "hf", "content": SECRET})
        yield made


def routes(cloud: Cloud) -> list[tuple[str, str]]:
    """All that a caller of the API asks, but for WebSockets."""
    app: Any = cloud.server.app  # type: ignore[attr-defined]
    found = {
        ("POST" if route.method == "*" else route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.method != "HEAD" and route.resource is not None
    }
    return sorted(route for route in found if route[1].startswith("/api/"))


def named(route: str) -> list[str]:
    """What stands in its braces."""
    return re.findall(r"\{(\w+)\}", route)


async def ask(cloud: Cloud, method: str, path: str, data: bytes | None = None) -> int:
    """The status, which is one of a caller's fault if it is none of success."""
    url = URL(f"{cloud.url.rstrip('/')}{path}", encoded=True)
    async with cloud.http.request(method, url, data=data) as answer:
        status, text = answer.status, await answer.text()
    case = f"{method} {path[:200]} {(data or b'')[:100]!r}: {status} {text[:300]}"
    assert status < 500, case
    if status >= 400:
        message = json.loads(text)["error"]["message"]
        assert message and "\n" not in message and len(message) < LONGEST, case
    return status


async def test_names_that_nothing_can_have(operator: Cloud, store: Store) -> None:
    before, tried = seen(store), 0
    for method, route in routes(operator):
        for field in named(route):
            good = THERE | {"name": name_in(route), "uid": "0" * 32}
            for name in (*NAMES, good[field].upper() if field != "uid" else "A" * 32):
                path = route.format(**good | {field: name})
                data = None if method == "GET" else b"{}"
                status = await ask(operator, method, path, data)
                assert status in (400, 403, 404, 431), f"{method} {path[:200]}: {status}"
                tried += 1
    assert tried > 500
    assert seen(store) == before, "nothing was changed"


def name_in(route: str) -> str:
    """That of what there is."""
    if "org_secrets" in route:
        return "hf"
    return "bob" if "/members/" in route or "/users/" in route else "echo"


def seen(store: Store) -> tuple[list[Any], ...]:
    tenant = store.organizations.organization("default").id
    return (
        [
            (one.name, one.status, one.latest.number)
            for one in store.deployments.of_organization(tenant)
        ],
        [(one.name, one.content) for one in store.secrets.of_organization(tenant)],
        [one.name for one in store.tokens.tokens(tenant)],
    )


async def test_bodies_that_are_no_objects_of_json(operator: Cloud) -> None:
    reads = [route for route, change in CHANGES.items() if change.body]
    for method, route in reads:
        inside = CHANGES[method, route].path or {"name": "echo"}
        for name, data in BODIES.items():
            status = await ask(operator, method, route.format(**inside), data)
            # These two are objects, of which a call may need nothing.
            assert status == 400 or name == "a NUL" or route.endswith("/link"), f"{route} {name}"


async def test_every_field_with_what_does_not_belong_there(operator: Cloud) -> None:
    tried = 0
    for method, route, good, inside in GOOD:
        path = route.format(**inside or {"name": "echo"})
        for at in places(good):
            for wrong in WRONG:
                await ask(operator, method, path, json.dumps(put(good, at, wrong)).encode())
                tried += 1
    assert tried > 1000, tried


def places(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a part of a JSON value stands: keys and numbers from the top on."""
    yield at
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in inside:
        yield from places(part, (*at, key))


def put(value: Any, at: tuple[Any, ...], part: object) -> Any:
    """The value with another part at this place."""
    if not at:
        return part
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = put(value[at[0]], at[1:], part)
    return copy


def with_weight(weight: object) -> dict[str, Any]:
    return {"canary": {"versions": {"next": {"bento": "echo:v2", "weight": weight}}}}


DEPLOYMENTS = "/api/v2/deployments"
TOLD = [
    ("POST", DEPLOYMENTS, with_weight(0.5), "weight: 0.5 is not a whole number"),
    ("POST", DEPLOYMENTS, with_weight(True), "weight: True is not a whole number"),
    ("POST", DEPLOYMENTS, with_weight("10"), "weight: '10' is not a whole number"),
    ("POST", DEPLOYMENTS, {"bento": ":latest"}, "':latest' names no bento"),
    ("POST", DEPLOYMENTS, {"bento": "echo:V1"}, "'echo:V1' does not exist"),
    ("POST", DEPLOYMENTS, {"name": "Echo"}, "'Echo' is not a deployment name"),
    (
        "POST",
        DEPLOYMENTS,
        {"services": {"Echo": {"deployment_strategy": "RolingUpdate"}}},
        "there is no 'RolingUpdate'; did you mean 'RollingUpdate'",
    ),
    (
        "POST",
        "/api/v1/hotplate/deployments/echo/rollout",
        {"action": "und"},
        "action: there is no 'und'; did you mean 'undo'",
    ),
    (
        "PUT",
        "/api/v1/hotplate/organizations/default/members/eve",
        {"email": "eve@x.com", "role": "develper"},
        "role: there is no 'develper'; did you mean 'developer'",
    ),
    (
        "POST",
        "/api/v1/api_tokens",
        {"name": "n", "service": True, "role": "Admin"},
        "role: there is no 'Admin'; did you mean 'admin'",
    ),
    ("PUT", "/api/v1/hotplate/users/bob/operator", {}, "operator: it is missing"),
]


async def test_what_there_is_not_is_told_with_what_is_nearest(operator: Cloud) -> None:
    for method, path, fields, said in TOLD:
        body = {"name": "new", "bento": "echo:v1", **fields} if path == DEPLOYMENTS else fields
        with pytest.raises(Refused, match=f"400.*{re.escape(said)}"):
            await operator.call(method, path, body)


async def test_a_page_behind_the_last_one_is_empty(operator: Cloud) -> None:
    ours = "/api/v1/hotplate/deployments"
    for path in (
        DEPLOYMENTS,
        "/api/v1/api_tokens",
        "/api/v1/org_secrets",
        f"{ours}/echo/revisions",
    ):
        page = await operator.call("GET", f"{path}?start=5000&count=10")
        assert page["items"] == [] and page["total"] > 0, path
        assert page.get("start", 5000) == 5000, path
