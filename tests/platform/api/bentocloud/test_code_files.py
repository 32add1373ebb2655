"""The files of code spaces over HTTP: who may send which, and what becomes of them."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import pytest

from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import MANIFEST, Cloud, Refused

SPACE = "/api/v2/deployments/space"
FILES = f"{SPACE}/files"
DEV = MANIFEST | {"dev": True, "image": {"python_version": "3.11"}}


def files(**content: str) -> dict[str, Any]:
    return {
        "files": [
            {
                "path": path.replace("_", "."),
                "b64_encoded_content": b64encode(text.encode()).decode(),
            }
            for path, text in content.items()
        ]
    }


READY = {"files": [{"path": ".project_ready", "b64_encoded_content": ""}]}


@pytest.fixture(autouse=True)
async def space(cloud: Cloud) -> None:
    await cloud.register("bento", "echo", "v1", DEV)
    path = "/api/v1/bento_repositories/echo/bentos/v1/finish_upload"
    done = await cloud.call("PATCH", path, {"status": "success", "reason": "for development"})
    assert done["upload_status"] == "success"
    made = await cloud.call(
        "POST", "/api/v2/deployments", {"name": "space", "bento": "echo:v1", "dev": True}
    )
    assert made["manifest"] == {"dev": True}


async def revision(cloud: Cloud) -> int:
    return int((await cloud.call("GET", SPACE))["latest_revision"]["name"])


async def test_nothing_begins_before_the_client_says_that_all_is_there(cloud: Cloud) -> None:
    await cloud.call("POST", FILES, files(service_py="x = 1"))
    assert await revision(cloud) == 1
    await cloud.call("POST", FILES, READY)
    assert await revision(cloud) == 2
    await cloud.call("POST", FILES, files(service_py="x = 2"))
    await cloud.call("DELETE", FILES, {"paths": ["service.py"]})
    assert await revision(cloud) == 4
    listed = (await cloud.call("GET", FILES))["files"]
    assert listed == [
        {"path": ".project_ready", "size": 0, "md5": "d41d8cd98f00b204e9800998ecf8427e"}
    ]


async def test_saves_at_once_each_count(cloud: Cloud) -> None:
    await cloud.call("POST", FILES, READY)
    await asyncio.gather(*(cloud.call("POST", FILES, files(**{f"f{n}": "x"})) for n in range(8)))
    listed = (await cloud.call("GET", FILES))["files"]
    assert [file["path"] for file in listed] == [".project_ready", *(f"f{n}" for n in range(8))]
    assert await revision(cloud) == 10


async def test_what_runs_is_kept_and_an_update_without_another_bento_goes_on_with_it(
    cloud: Cloud, store: Store
) -> None:
    await cloud.call("POST", FILES, files(service_py="x = 1"))
    await cloud.call("POST", FILES, READY)
    deployment = store.deployments.find(cloud.user.organization.id, "space")
    assert deployment.latest.bento.files in store.artifacts.named_files()
    await cloud.call("PUT", SPACE, {"bento": "echo:v1", "envs": [{"name": "A", "value": "1"}]})
    after = store.deployments.find(cloud.user.organization.id, "space")
    assert after.latest.number == 3
    assert after.latest.bento.files == deployment.latest.bento.files


async def test_what_is_refused_changes_nothing(cloud: Cloud) -> None:
    bad = {"path": "../out", "b64_encoded_content": ""}
    for body in (
        {"files": [*files(a="x")["files"], bad]},
        {"files": [{"path": "a", "b64_encoded_content": "?"}]},
    ):
        with pytest.raises(Refused, match="400"):
            await cloud.call("POST", FILES, body)
    assert (await cloud.call("GET", FILES)) == {"files": []}


async def test_only_code_spaces_have_files_and_only_they_run_such_bentos(cloud: Cloud) -> None:
    with pytest.raises(Refused, match="bentoml build --push"):
        await cloud.call("POST", "/api/v2/deployments", {"name": "other", "bento": "echo:v1"})
    await cloud.push_bento("packed")
    with pytest.raises(Refused, match="under a name of its own"):
        await cloud.call("PUT", SPACE, {"bento": "packed:v1"})
    await cloud.call("POST", "/api/v2/deployments", {"name": "other", "bento": "packed:v1"})
    with pytest.raises(Refused, match="no code space"):
        await cloud.call("GET", "/api/v2/deployments/other/files")


async def test_code_spaces_are_listed_alone_with_their_manifests(cloud: Cloud) -> None:
    await cloud.make_code_space("second")
    await cloud.push_bento("packed")
    await cloud.call("POST", "/api/v2/deployments", {"name": "other", "bento": "packed:v1"})

    async def listed(query: str) -> tuple[list[str], int]:
        found = await cloud.call("GET", f"/api/v2/deployments?q=is:dev{query}")
        for item in found["items"]:
            assert item["latest_revision"]["targets"][0]["bento"]["manifest"]["dev"]
        return [item["name"] for item in found["items"]], found["total"]

    assert await listed("") == (["second", "space"], 2)
    assert await listed("&count=1") == (["second"], 2)
    assert await listed("&start=1&count=3") == (["space"], 2)
    assert await listed("+spa") == (["space"], 1)
    assert await listed("+label:a=b") == ([], 0)


async def test_a_list_says_of_its_items_what_is_a_code_space(cloud: Cloud) -> None:
    """`bentoml code --cluster` sends no `is:dev`, and goes by that."""
    await cloud.push_bento("packed")
    await cloud.call("POST", "/api/v2/deployments", {"name": "other", "bento": "packed:v1"})
    listed = (await cloud.call("GET", "/api/v2/deployments?cluster=default"))["items"]
    shown = {item["name"]: item["manifest"] for item in listed}
    assert shown == {"other": None, "space": {"dev": True}}


async def test_a_terminated_code_space_takes_no_files(cloud: Cloud) -> None:
    await cloud.call("POST", f"{SPACE}/terminate")
    with pytest.raises(Refused, match="409"):
        await cloud.call("POST", FILES, READY)


async def test_another_organization_finds_no_such_code_space(cloud: Cloud, store: Store) -> None:
    async with Cloud(cloud.server, store, "others", name="eve") as other:
        for method in ("GET", "POST", "DELETE"):
            with pytest.raises(Refused, match="404"):
                await other.call(method, FILES, {})
