"""What a signed URL opens: what it names, as long as that is there, and nothing else."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer
from yarl import URL

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud, tar_of, versions
from tests.support.control_plane.controller_fake import FakeController

BENTO = f"{versions('bento', 'echo')}/v1"
OTHER = "0" * 64


@dataclass
class Stranger:
    """Somebody who has a URL and no token."""

    http: ClientSession

    async def asks(self, url: str, method: str = "GET") -> int:
        body = b"x" if method in ("PUT", "POST", "PATCH") else None
        async with self.http.request(method, URL(url, encoded=True), data=body) as response:
            await response.read()
            return response.status


@pytest.fixture
async def stranger() -> AsyncIterator[Stranger]:
    async with ClientSession() as http:
        yield Stranger(http)


async def download_url(cloud: Cloud) -> str:
    signed = await cloud.call("PATCH", f"{BENTO}/presign_download_url")
    return str(signed["presigned_download_url"])


async def upload_url(cloud: Cloud, version: str = "v2") -> str:
    await cloud.register("bento", "echo", version)
    one = f"{versions('bento', 'echo')}/{version}"
    return str((await cloud.call("PATCH", f"{one}/presign_upload_url"))["presigned_upload_url"])


def claims_of(url: str) -> tuple[str, dict[str, Any], str]:
    """What stands before the claims, the claims, and the signature."""
    root, _, link = url.rpartition("/")
    claims, _, signature = link.partition(".")
    return root, json.loads(urlsafe_b64decode(claims)), signature


def changed(url: str, changes: Mapping[str, object]) -> str:
    root, claims, signature = claims_of(url)
    packed = urlsafe_b64encode(json.dumps({**claims, **changes}).encode()).decode()
    return f"{root}/{packed}.{signature}"


def widened(url: str, foreign: str) -> Iterator[str]:
    """What somebody would make of a URL of theirs; `foreign` is another organization's."""
    root, claims, signature = claims_of(url)
    link = url.removeprefix(f"{root}/")
    _, others, other_signature = claims_of(foreign)
    for name in ("subject", "version_id", "version_uid"):
        yield changed(url, {name: others[name]})
    yield changed(url, {"subject": OTHER})
    yield changed(url, {"subject": "../../hotplate.db"})
    yield changed(url, {"expires_at": claims["expires_at"] + 1e6})
    yield changed(url, {"expires_at": "never"})
    yield changed(url, {"action": "put" if claims["action"] == "get" else "get"})
    yield changed(url, {"organization": "acme"})
    yield url.replace(signature, other_signature)
    yield f"{root}/{link.partition('.')[0]}"
    yield f"{root}/{link.partition('.')[0]}."
    yield f"{root}/{link}x"
    yield f"{root}/{link}.x"
    yield f"{root}/{link}/../{OTHER}"
    yield f"{root}/{link}%2F..%2F{OTHER}"
    yield f"{root}/{link}/%2e%2e/{OTHER}"
    yield f"{root}/%2e%2e%2f{OTHER}"
    yield f"{root}/{link}%00"
    yield f"{root}/{link.upper()}"


async def test_a_forged_or_widened_url_opens_nothing(
    cloud: Cloud, store: Store, stranger: Stranger
) -> None:
    await cloud.push_bento()
    async with Cloud(cloud.server, store, "rival", name="eve") as rival:
        await rival.push_bento(more="who: rival\n")
        foreign = await download_url(rival)
    getting, putting = await download_url(cloud), await upload_url(cloud)
    assert await stranger.asks(getting) == 200
    for url, method in ((getting, "GET"), (putting, "PUT")):
        for forged in widened(url, foreign):
            assert await stranger.asks(forged, method) in (403, 404), forged
    for method in ("PUT", "POST", "PATCH", "DELETE", "OPTIONS"):
        assert await stranger.asks(getting, method) == 403, method
    for method in ("GET", "HEAD", "POST", "DELETE"):
        assert await stranger.asks(putting, method) == 403, method
    assert await stranger.asks(getting) == 200
    assert await stranger.asks(putting, "PUT") == 200


async def test_the_urls_of_a_version_end_with_it(cloud: Cloud, stranger: Stranger) -> None:
    await cloud.push_bento()
    getting, putting = await download_url(cloud), await upload_url(cloud)
    await cloud.call("DELETE", BENTO)
    assert await stranger.asks(getting) == 404
    await cloud.call("DELETE", f"{versions('bento', 'echo')}/v2")
    assert await stranger.asks(putting, "PUT") == 404
    await cloud.push_bento()
    assert await stranger.asks(getting) == 404, "another version has its name, and its files"


async def test_the_urls_of_an_organization_end_at_once_with_it(
    cloud: Cloud, store: Store, stranger: Stranger
) -> None:
    await cloud.push_bento()
    await cloud.deploy()
    getting, putting = await download_url(cloud), await upload_url(cloud)
    store.organizations.delete("acme", force=True)
    for _ in range(2):
        assert await stranger.asks(getting) == 404
        assert await stranger.asks(putting, "PUT") == 404
        for deployment in store.deployments.all():
            store.deployments.forget(deployment.id)
        store.organizations.finish_deletions()
    async with Cloud(cloud.server, store, name="bob") as again:
        await again.push_bento()
        assert await stranger.asks(getting) == 404, "another organization has its name"


async def test_a_version_that_was_pushed_again_has_no_files_of_before(
    cloud: Cloud, stranger: Stranger
) -> None:
    await cloud.push_bento()
    old = await download_url(cloud)
    content = tar_of({"bento.yaml": "name: echo\nversion: v1\nnew: true\n"})
    await cloud.call("PUT", f"{BENTO}/upload", data=content)
    _, claims, _ = claims_of(old)
    assert claims["subject"] != claims_of(await download_url(cloud))[1]["subject"]
    assert await stranger.asks(old) == 200, "while its files are there"


@pytest.mark.parametrize(
    ("settings", "root"),
    [
        (ApiSettings(public_url="https://hot.example/"), "https://hot.example/"),
        (ApiSettings(trusted_proxies=("127.0.0.1",)), "https://127.0.0.1:"),
        (ApiSettings(), "http://127.0.0.1:"),
    ],
)
async def test_urls_say_how_the_world_calls_us(
    store: Store, blobs: BlobStore, controller: FakeController, settings: ApiSettings, root: str
) -> None:
    """Through a proxy that ends https: the client does not follow a redirect from http."""
    app = make_app(store, blobs, controller, settings)
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        await cloud.push_bento()
        cloud.http.headers["X-Forwarded-Proto"] = "https"
        for url in (await download_url(cloud), await upload_url(cloud)):
            assert url.startswith(root)
