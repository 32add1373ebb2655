from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession

from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.tarballs import archive
from hotplate.platform.store.audit import AuditFilter
from hotplate.platform.store.database import Database
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind
from tests.support.control_plane.cloud import (
    MANIFEST,
    MODEL_MANIFEST,
    answer,
    put,
    tar_of,
    versions,
)

ROOT = Path(__file__).parents[2]


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    """A server is killed while it takes writes; each one that it answered is still there."""
    acknowledged: list[str] = []
    enough = asyncio.Event()

    def acknowledge(name: str) -> None:
        acknowledged.append(name)
        if len(acknowledged) == 12:
            enough.set()

    async with serving(tmp_path) as (server, http):
        token = http.headers["X-YATAI-API-TOKEN"]
        writers = [asyncio.create_task(push_on(http, f"w{n}", acknowledge)) for n in range(3)]
        await enough.wait()
        server.kill()
        await asyncio.wait(writers)

    store, blobs = (
        Store(Database(f"sqlite:///{tmp_path}/hotplate.db")),
        BlobStore(f"file://{tmp_path}/blobs"),
    )
    assert store.tokens.find_token(token) is not None
    tenant = store.identities.ensure_user("acme", "ada", "").organization.id
    for name in acknowledged:
        bento = store.artifacts.get(tenant, Kind.BENTO, name, "v1")
        assert bento.upload_status == "success"
        packed = b"".join(archive.pack(blobs.get_manifest(bento.files), blobs))
        assert f"name: {name}\n".encode() in packed
        assert store.deployments.find(tenant, name).latest.bento == bento
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


async def test_a_change_that_was_answered_has_its_line_after_a_kill(tmp_path: Path) -> None:
    """The server is killed as soon as it has answered; neither is there without the other."""
    made: list[str] = []
    for number in range(3):
        async with serving(tmp_path) as (server, http):
            for name in (f"a{number}", f"b{number}"):
                await call(http, "POST", "/api/v1/bento_repositories", {"name": name})
                made.append(name)
            server.kill()
    store = Store(Database(f"sqlite:///{tmp_path}/hotplate.db"))
    found, _ = store.audit.page(AuditFilter(action="bento_repository.create"), 100)
    assert [line.object for line in reversed(found)] == made
    store.close()


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


async def test_parts_that_arrived_before_a_kill_need_not_be_sent_again(tmp_path: Path) -> None:
    whole = tar_of({"model.yaml": "name: bert\nversion: '1'\n", "weights.bin": bytes(300_000)})
    sent = [whole[:100_000], whole[100_000:200_000], whole[200_000:]]
    one = f"{versions('model', 'bert')}/1"
    draft = {"description": "", "version": "1", "manifest": MODEL_MANIFEST, "labels": []}
    done: list[dict[str, object]] = []
    upload_id = ""
    for numbers in ((1, 2), (3,)):  # each by a server of its own
        async with serving(tmp_path) as (server, http):
            if not upload_id:
                await call(http, "POST", "/api/v1/model_repositories", {"name": "bert"})
                await call(http, "POST", versions("model", "bert"), draft)
            await call(http, "PATCH", f"{one}/start_upload")
            begun = await call(http, "PATCH", f"{one}/start_multipart_upload")
            assert upload_id in ("", begun["upload_id"])
            upload_id = begun["upload_id"]
            for number in numbers:
                body = {"upload_id": upload_id, "part_number": number}
                signed = await call(http, "PATCH", f"{one}/presign_multipart_upload_url", body)
                etag = await put(signed["presigned_upload_url"], sent[number - 1])
                done.append({"part_number": number, "etag": etag})
            if len(done) == len(sent):
                body = {"upload_id": upload_id, "parts": done}
                model = await call(http, "PATCH", f"{one}/complete_multipart_upload", body)
                assert model["upload_status"] == "success"
            server.kill()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Process, ClientSession]]:
    """A server of its own process, and a client; it is to be killed in the block."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.platform.served_api", str(folder)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert server.stdout is not None
        port, token = (await server.stdout.readline()).decode().split()
        headers = {"X-YATAI-API-TOKEN": token}
        async with ClientSession(f"http://127.0.0.1:{port}", headers=headers) as http:
            yield server, http
        assert await server.wait() == -signal.SIGKILL
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


async def call(http: ClientSession, method: str, path: str, body: object = None) -> Any:
    async with http.request(method, path, json=body) as response:
        return await answer(response)
