from __future__ import annotations

import asyncio
import json

import pytest

from hotplate.platform.cli import main
from tests.support.control_plane.cloud import MANIFEST, Cloud, Refused, tar_of, versions

WITH_MODEL = {**MANIFEST, "models": ["bert:1"]}


async def push_model(cloud: Cloud, version: str) -> None:
    await cloud.register("model", "bert", version)
    await cloud.push_parts(
        "bert", version, [tar_of({"model.yaml": f"name: bert\nversion: '{version}'\n"})]
    )


async def test_a_version_that_nobody_needs_is_deleted_and_can_be_pushed_again(
    cloud: Cloud,
) -> None:
    await cloud.push_bento()
    gone = await cloud.call("DELETE", f"{versions('bento', 'echo')}/v1")
    assert gone["version"] == "v1"
    with pytest.raises(Refused, match="404"):
        await cloud.call("GET", f"{versions('bento', 'echo')}/v1")
    with pytest.raises(Refused, match="404"):
        await cloud.call("DELETE", f"{versions('bento', 'echo')}/v1")
    await cloud.push_bento()
    assert (await cloud.deploy())["name"] == "echo"


async def test_a_version_that_a_kept_revision_needs_stays(cloud: Cloud) -> None:
    await push_model(cloud, "1")
    await push_model(cloud, "2")
    await cloud.push_bento(manifest=WITH_MODEL)
    await cloud.deploy()
    for path, what in (("bento", "echo:v1"), ("model", "bert:1")):
        name, _, version = what.partition(":")
        with pytest.raises(Refused) as refused:
            await cloud.call("DELETE", f"{versions(path, name)}/{version}")
        assert refused.value.status == 409
        assert refused.value.message.startswith(
            f"{path} '{what}' is needed by revision 1 of deployment 'echo'; "
        )
    await cloud.call("DELETE", f"{versions('model', 'bert')}/2")


async def test_what_a_version_of_a_canary_needs_stays_too(cloud: Cloud) -> None:
    await cloud.push_bento()
    await cloud.push_bento(version="v2")
    version = {"bento": "echo:v2", "weight": 10}
    await cloud.deploy(canary={"route_type": "random", "versions": {"next": version}})
    with pytest.raises(Refused, match="by revision 1 of version 'next' of deployment 'echo'; "):
        await cloud.call("DELETE", f"{versions('bento', 'echo')}/v2")


async def test_the_commands_list_and_delete(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    async def hotplate(*words: str) -> tuple[int, str]:
        where = ["--endpoint", str(cloud.server.make_url("/")), "--token", cloud.token]
        status = await asyncio.to_thread(main, [*words, *where])
        out, error = capsys.readouterr()
        return status, out or error

    await cloud.push_bento()
    await cloud.push_bento(version="v2")
    await push_model(cloud, "1")
    assert "echo:v1" in (await hotplate("bento"))[1]
    assert "bert:1" in (await hotplate("model", "bert"))[1]
    assert await hotplate("bento", "delete", "echo:v1") == (0, "bento echo:v1 is deleted\n")
    status, out = await hotplate("bento", "echo", "--json")
    assert (status, [one["version"] for one in json.loads(out)["items"]]) == (0, ["v2"])
    assert await hotplate("bento", "no") == (
        1,
        "hotplate: bento 'no' has no version in this organization\n",
    )
    for words in (["delete"], ["delete", "echo"], ["delete", "echo:v2", "echo:v3"]):
        status, out = await hotplate("bento", *words)
        assert status == 1 and "write hotplate bento delete NAME:VERSION" in out
    status, out = await hotplate("bento", "delete", "echo:v9")
    assert (status, "does not exist" in out) == (1, True)
