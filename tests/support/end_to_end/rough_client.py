"""The API without the bentoml client, for what that client cannot be made to send."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.control_plane.cloud import (
    MODEL_MANIFEST,
    ApiSession,
    Refused,
    put,
    tar_of,
    versions,
)
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.patience import until


@dataclass(frozen=True)
class Bento:
    """A bento as files in memory, with its manifest as the client registers it."""

    name: str
    version: str
    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]

    @classmethod
    def read(cls, folder: Path) -> Bento:
        """One that `bentoml build` has made."""
        files = _contents(folder)
        about = yaml.safe_load(files["bento.yaml"])
        manifest = {**about, "size_bytes": sum(map(len, files.values()))}
        return cls(about["name"], about["version"], manifest, files)

    def changed(self, name: str, files: Mapping[str, str] | None = None, **about: Any) -> Bento:
        """Another bento: some files and some keys of its `bento.yaml` replaced."""
        manifest = {**self.manifest, **about, "name": name}
        texts = {**(files or {}), "bento.yaml": yaml.safe_dump(manifest)}
        encoded = {path: text.encode() for path, text in texts.items()}
        return Bento(name, self.version, manifest, {**self.files, **encoded})

    def needing(self, name: str, model: str) -> Bento:
        """The same with one model, `name:version`."""
        info = {"tag": model, "module": "", "creation_time": "2026-01-01T00:00:00+00:00"}
        services = [{**each, "models": [info]} for each in self.manifest["services"]]
        return self.changed(name, models=[info], services=services)

    @property
    def tag(self) -> str:
        return f"{self.name}:{self.version}"

    def write(self, folder: Path) -> None:
        """Put its files there, as `bentoml build` would have."""
        for path, content in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

    def tar(self, *members: tarfile.TarInfo, without: str = "") -> bytes:
        """Its tar, with extra members that have no content, and without one file."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:") as tar:
            for path, content in self.files.items():
                if path != without:
                    info = tarfile.TarInfo(f"./{path}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
            for member in members:
                tar.addfile(member)
        return buffer.getvalue()


class RoughClient(ApiSession):
    """One user's requests to a platform, and what it is waited for there."""

    def __init__(self, platform: AnyPlatform) -> None:
        super().__init__(platform.url, platform.token)
        self._platform = platform

    async def refusal(
        self, method: str, path: str, body: object = None, data: object = None
    ) -> Refused:
        """The refusal that the request gets: one sentence for a person, whatever went wrong."""
        try:
            said = await self.call(method, path, body, data)
        except Refused as refused:
            assert 400 <= refused.status < 500, refused
            assert "\n" not in refused.message
            assert "Traceback" not in refused.message
            return refused
        raise AssertionError(f"{method} {path} was not refused: {said}")

    async def register(self, kind: str, name: str, version: str, manifest: object) -> str:
        """Repository and version, without content yet; the path of the version."""
        await self.call("POST", f"/api/v1/{kind}_repositories", {"name": name, "description": ""})
        draft = {"description": "", "version": version, "manifest": manifest, "labels": []}
        await self.call("POST", versions(kind, name), draft)
        return f"{versions(kind, name)}/{version}"

    async def push(self, bento: Bento) -> str:
        """Its tag."""
        one = await self.register("bento", bento.name, bento.version, bento.manifest)
        await self.call("PUT", f"{one}/upload", data=bento.tar())
        return bento.tag

    async def push_model(self, folder: Path) -> str:
        """Its tag; the folder has its `model.yaml`."""
        about = yaml.safe_load((folder / "model.yaml").read_text())
        one = await self.register("model", about["name"], about["version"], MODEL_MANIFEST)
        await self.call("PATCH", f"{one}/start_upload")
        presigned = await self.call("PATCH", f"{one}/presign_upload_url")
        await put(presigned["presigned_upload_url"], tar_of(_contents(folder)))
        await self.call("PATCH", f"{one}/finish_upload", {"status": "success", "reason": ""})
        return f"{about['name']}:{about['version']}"

    async def deploy(self, name: str, bento: str, **services: Any) -> Any:
        body = {"name": name, "bento": bento, "services": services}
        return await self.call("POST", "/api/v2/deployments", body)

    async def update(self, name: str, bento: str, **services: Any) -> Any:
        body = {"bento": bento, "services": services}
        return await self.call("PUT", f"/api/v2/deployments/{name}", body)

    @asynccontextmanager
    async def deployed(self, name: str, bento: str, **services: Any) -> AsyncIterator[str]:
        """The URL of a deployment that has started once, deleted at the end."""
        try:
            await self.deploy(name, bento, **services)
            await self.settled(name, "running", "scaled-to-zero")
            yield await self._platform.url_of(name)
        finally:
            await asyncio.shield(self._platform.delete(name))

    async def settled(self, name: str, *statuses: str) -> dict[str, Any]:
        """The platform's page on the deployment, once its status is one of these."""
        page: dict[str, Any] = {}

        async def reached() -> bool:
            page.update(await self.call("GET", f"/api/v1/hotplate/deployments/{name}"))
            return page["status"] in statuses

        try:
            await until(reached)
        except TimeoutError:
            raise AssertionError(f"{name} is {page['status']}: {page}") from None
        return page

    async def send_half(self, path: str, data: bytes) -> None:
        """A PUT whose connection is closed after half of what it announces."""
        host, port = self._platform.host, self._platform.port
        _, writer = await asyncio.open_connection(host, port)
        head = (
            f"PUT {path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"X-YATAI-API-TOKEN: {self._platform.token}\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        writer.write(head.encode() + data[: len(data) // 2])
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def _contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
