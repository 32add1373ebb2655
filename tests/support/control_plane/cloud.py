"""A caller of the API, and the steps of a push as the client does them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, Self

from aiohttp import ClientResponse, ClientSession, CookieJar
from aiohttp.test_utils import BaseTestServer

from hotplate.platform.spec.scopes import API
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole

MANIFEST = {
    "service": "service:Echo",
    "name": "echo",
    "version": "v1",
    "bentoml_version": "1.4.39",
    "size_bytes": 10,
    "entry_service": "Echo",
    "apis": {},
    "models": [],
    "runners": [],
    "services": [{"name": "Echo", "config": {"traffic": {"concurrency": 1}}}],
    "envs": [],
    "schema": {"name": "Echo", "routes": []},
    "spec": 2,
}
MODEL_MANIFEST = {
    "module": "",
    "api_version": "v1",
    "bentoml_version": "1.4.39",
    "size_bytes": 10,
    "metadata": {},
    "context": {},
    "options": {},
}


class Refused(Exception):
    """The server said no."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        error = json.loads(body)["error"]
        self.code: str = error["code"]
        self.message: str = error["message"]


class ApiSession:
    """One user's requests, each as it is written in a test."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    async def __aenter__(self) -> Self:
        self.http = ClientSession(
            self.url,
            headers={"X-YATAI-API-TOKEN": self.token},
            cookie_jar=CookieJar(unsafe=True),  # also of a server without a name
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    async def call(self, method: str, path: str, body: object = None, data: object = None) -> Any:
        """The JSON answer. Raises Refused for anything but 200, as the client does."""
        async with self.http.request(method, path, json=body, data=data) as response:
            return await answer(response)

    async def send_parts(self, one: str, parts: list[bytes]) -> tuple[str, list[dict[str, Any]]]:
        """The upload's id and the list of parts for its completion."""
        await self.call("PATCH", f"{one}/start_upload")
        upload_id = (await self.call("PATCH", f"{one}/start_multipart_upload"))["upload_id"]
        done = []
        for number, part in enumerate(parts, 1):
            body = {"upload_id": upload_id, "part_number": number}
            signed = await self.call("PATCH", f"{one}/presign_multipart_upload_url", body)
            etag = await put(signed["presigned_upload_url"], part)
            done.append({"part_number": number, "etag": etag})
        return upload_id, done


class Cloud(ApiSession):
    """One user of one organization."""

    def __init__(
        self,
        server: BaseTestServer,
        store: Store,
        organization: str = "acme",
        *,
        name: str = "ada",
        role: MemberRole = MemberRole.ADMIN,
        scopes: Sequence[str] = (API,),
        operator: bool = False,
    ) -> None:
        self.server = server
        self.store = store
        self.user = store.identities.ensure_user(organization, name, f"{name}@example.com", role)
        if operator:
            store.identities.set_operator(name, operator=True)
        self.token = store.tokens.add_token(self.user, "laptop", scopes=scopes, operator=operator)
        super().__init__(str(server.make_url("/")), self.token)

    async def register(
        self, kind: str, name: str, version: str, manifest: Mapping[str, Any] | None = None
    ) -> Any:
        """Repository and version, before anything is uploaded."""
        await self.call("POST", f"/api/v1/{kind}_repositories", {"name": name, "description": ""})
        default = MANIFEST if kind == "bento" else MODEL_MANIFEST
        draft = {
            "description": "",
            "version": version,
            "manifest": dict(manifest or default),
            "build_at": "2026-01-02 03:04:05.000006",
            "labels": [],
        }
        return await self.call("POST", versions(kind, name), draft)

    async def push_bento(
        self,
        name: str = "echo",
        version: str = "v1",
        manifest: Mapping[str, Any] | None = None,
        more: str = "",
    ) -> None:
        """`more` is what else its `bento.yaml` says."""
        await self.register("bento", name, version, manifest)
        await self.call("PATCH", f"{versions('bento', name)}/{version}/start_upload")
        tar = tar_of({"bento.yaml": f"name: {name}\nversion: '{version}'\n{more}"})
        await self.call("PUT", f"{versions('bento', name)}/{version}/upload", data=tar)

    async def make_code_space(self, name: str) -> None:
        """A deployment of `bentoml code`, before any file of it was sent."""
        dev = MANIFEST | {"dev": True, "image": {"python_version": "3.11"}}
        await self.register("bento", name, "v1", dev)
        done = {"status": "success", "reason": "for development"}
        await self.call("PATCH", f"{versions('bento', name)}/v1/finish_upload", done)
        await self.call(
            "POST", "/api/v2/deployments", {"name": name, "bento": f"{name}:v1", "dev": True}
        )

    async def push_parts(self, name: str, version: str, parts: list[bytes]) -> Any:
        """A model in parts; the answer of `finish_upload`."""
        one = f"{versions('model', name)}/{version}"
        upload_id, done = await self.send_parts(one, parts)
        body = {"upload_id": upload_id, "parts": done}
        await self.call("PATCH", f"{one}/complete_multipart_upload", body)
        return await self.call("PATCH", f"{one}/finish_upload", {"status": "success", "reason": ""})

    async def deploy(self, name: str | None = "echo", **fields: Any) -> Any:
        body = {"name": name, "bento": "echo:v1", "dev": False, **fields}
        return await self.call("POST", "/api/v2/deployments?cluster=", body)


def versions(kind: str, name: str) -> str:
    return f"/api/v1/{kind}_repositories/{name}/{kind}s"


async def put(url: str, data: bytes) -> str:
    """A PUT to a signed URL, without any token; its ETag."""
    async with ClientSession() as session, session.put(url, data=data) as response:
        if response.status != 200:
            raise Refused(response.status, await response.text())
        return response.headers["ETag"]


async def answer(response: ClientResponse) -> Any:
    text = await response.text()
    if response.status != 200:
        raise Refused(response.status, text)
    return json.loads(text)


def tar_of(files: Mapping[str, str | bytes]) -> bytes:
    """A tar as the client makes it: members under `./`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as tar:
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(f"./{path}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
