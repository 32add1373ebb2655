"""`hotplate key`, as an operator types it."""

from __future__ import annotations

import json

from tests.platform.commands.conftest import Hotplate
from tests.support.control_plane.cloud import Cloud


async def test_an_operator_lists_keys_and_makes_a_new_one(hotplate: Hotplate, cloud: Cloud) -> None:
    content = {"type": "env", "items": [{"key": "TOKEN", "value": "hf_123"}]}
    await cloud.call("POST", "/api/v1/org_secrets", {"name": "hf", "content": content})
    status, out, _ = await hotplate("key", "--json")
    (old,) = json.loads(out)["items"]
    assert (status, old["encrypts"], old["values"]) == (0, True, 1)
    assert set(old) == {"id", "made_at", "encrypts", "values"}
    status, out, _ = await hotplate("key", "rotate")
    key, day, _, encrypts, values = out.splitlines()[-1].split()
    assert (status, encrypts, values) == (0, "yes", "1")
    assert (key != old["id"], day) == (True, old["made_at"][:10])
    assert json.loads((await hotplate("key", "--json"))[1])["total"] == 1
    assert [each.value for each in cloud.store.secrets.values("acme", ["hf"])] == ["hf_123"]


async def test_nobody_else_does_and_nothing_else_is_understood(
    hotplate: Hotplate, cloud: Cloud
) -> None:
    for words in ((), ("rotate",)):
        status, _, error = await hotplate("key", *words, token=cloud.token)
        assert (status, "this needs an operator" in error) == (1, True)
    status, _, error = await hotplate("key", "rotated")
    assert (status, error) == (
        1,
        "hotplate: key rotated: write hotplate key | hotplate key rotate\n",
    )
