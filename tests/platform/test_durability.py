from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession

from hotplate.cache import archive
from hotplate.cache.blobs import BlobStore
from hotplate.platform.store.records import Kind
from hotplate.platform.store.store import Store
from tests.platform.cloud import MANIFEST, answer, tar_of, versions

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(30)
async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    """A server is killed while it takes writes; each one that it answered is still there."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.platform.served_api", str(tmp_path)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert server.stdout is not None
    port, token = (await server.stdout.readline()).decode().split()
    headers = {"X-YATAI-API-TOKEN": token}
    acknowledged: list[str] = []
    enough = asyncio.Event()

    def acknowledge(name: str) -> None:
        acknowledged.append(name)
        if len(acknowledged) == 12:
            enough.set()

    async with ClientSession(f"http://127.0.0.1:{port}", headers=headers) as http:
        writers = [asyncio.create_task(push_on(http, f"w{n}", acknowledge)) for n in range(3)]
        await enough.wait()
        server.kill()
        await asyncio.wait(writers)
    assert await server.wait() == -signal.SIGKILL

    store, blobs = Store(f"sqlite:///{tmp_path}/hotplate.db"), BlobStore(f"file://{tmp_path}/blobs")
    assert store.find_token(token) is not None
    tenant = store.ensure_user("acme", "ada", "").organization.id
    for name in acknowledged:
        bento = store.artifact(tenant, Kind.BENTO, name, "v1")
        assert bento.upload_status == "success"
        packed = b"".join(archive.pack(blobs.get_manifest(bento.files), blobs))
        assert f"name: {name}\n".encode() in packed
        assert store.find_deployment(tenant, name).latest.bento == bento
    store.close()


async def push_on(http: ClientSession, writer: str, acknowledge: Callable[[str], None]) -> None:
    """Pushes and deploys one bento after the other until the server is gone."""
    number = 0
    try:
        while True:
            name = f"{writer}-{number}"
            await push(http, name)
            acknowledge(name)
            number += 1
    except (ClientError, ConnectionError):
        return


async def push(http: ClientSession, name: str) -> None:
    draft = {"description": "", "version": "v1", "manifest": MANIFEST, "labels": []}
    tar = tar_of({"bento.yaml": f"name: {name}\nversion: v1\n"})
    deployment = {"name": name, "bento": f"{name}:v1"}
    for method, path, body, data in (
        ("POST", "/api/v1/bento_repositories", {"name": name}, None),
        ("POST", versions("bento", name), draft, None),
        ("PUT", f"{versions('bento', name)}/v1/upload", None, tar),
        ("POST", "/api/v2/deployments", deployment, None),
    ):
        async with http.request(method, path, json=body, data=data) as response:
            await answer(response)
