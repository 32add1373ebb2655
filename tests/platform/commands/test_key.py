"""`hotplate key`, as an operator types it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from hotplate.platform.cli import main
from hotplate.platform.store.identities import ADMIN, ORGANIZATION
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud

Hotplate = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def hotplate(store: Store, cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> Hotplate:
    user = store.identities.ensure_user(ORGANIZATION, ADMIN, "a@localhost")
    store.identities.ensure_operator(user)
    operator = store.tokens.add_token(user, "admin", operator=True)
    endpoint = str(cloud.server.make_url("/"))

    async def run(*words: str, token: str = operator) -> tuple[int, str, str]:
        command = ["key", *words, "--endpoint", endpoint, "--token", token]
        status = await asyncio.to_thread(main, command)
        return status, *capsys.readouterr()

    return run


async def test_an_operator_lists_keys_and_makes_a_new_one(hotplate: Hotplate, cloud: Cloud) -> None:
    content = {"type": "env", "items": [{"key": "TOKEN", "value": "hf_123"}]}
    await cloud.call("POST", "/api/v1/org_secrets", {"name": "hf", "content": content})
    status, out, _ = await hotplate("--json")
    (old,) = json.loads(out)["items"]
    assert (status, old["encrypts"], old["values"]) == (0, True, 1)
    assert set(old) == {"id", "made_at", "encrypts", "values"}
    status, out, _ = await hotplate("rotate")
    key, day, _, encrypts, values = out.splitlines()[-1].split()
    assert (status, encrypts, values) == (0, "yes", "1")
    assert (key != old["id"], day) == (True, old["made_at"][:10])
    assert json.loads((await hotplate("--json"))[1])["total"] == 1
    assert [each.value for each in cloud.store.secrets.values("acme", ["hf"])] == ["hf_123"]


async def test_nobody_else_does_and_nothing_else_is_understood(
    hotplate: Hotplate, cloud: Cloud
) -> None:
    for words in ((), ("rotate",)):
        status, _, error = await hotplate(*words, token=cloud.token)
        assert (status, "this needs an operator" in error) == (1, True)
    status, _, error = await hotplate("rotated")
    assert (status, error) == (
        1,
        "hotplate: key rotated: write hotplate key | hotplate key rotate\n",
    )
