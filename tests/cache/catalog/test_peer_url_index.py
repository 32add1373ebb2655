"""What another agent, which has the cluster's token, may say of a URL."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from hotplate.cache.catalog.peer_url_index import PeerUrlIndex, is_place
from hotplate.cache.errors import CacheError
from hotplate.cache.origins.locations import Location, Version
from tests.support.cache.hub import COMMIT


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("https://h/m", "https://h/m"),
        ("https://h/m", "https://h/m/a/b"),
        ("https://h/m", "https://h/elsewhere"),  # where a redirect on that host has led
        ("s3://bucket/m/", "s3://bucket/m/a"),
        ("/models/m", "file:///models/m/a"),
        ("hf://o/n@main", f"hf://o/n@{COMMIT}/a"),
        ("hf://o/n@main?endpoint=http%3A%2F%2Fh", f"hf://o/n@{COMMIT}/a?endpoint=http%3A%2F%2Fh"),
    ],
)
def test_files_of_a_url(url: str, file: str) -> None:
    assert is_place(Location(url.rstrip("/"), (Version(file, 1, "t"),)), url)


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("https://h/m", "file:///etc/shadow"),
        ("https://h/m", "/etc/shadow"),
        ("https://h/m", "http://169.254.169.254/latest"),
        ("https://h/m", "http://h/m"),
        ("https://h/m", "simplecache::file:///etc/shadow"),
        ("s3://bucket/m", "s3://bucket/other"),
        ("s3://bucket/m", "s3://bucket/m/../../x"),
        ("/models/m", "file:///models/m/../../etc/shadow"),
        ("/models/m", "file:///models/more"),
        ("hf://o/n@main", f"hf://o/other@{COMMIT}/a"),
        ("hf://o/n@main", f"hf://o/n@{COMMIT}/a?endpoint=http%3A%2F%2F127.0.0.1"),
        ("hf://o/n@main", "hf://o/n@main/a"),
        ("hf://o/n@main", "file:///etc/shadow"),
    ],
)
def test_files_of_another_place_are_refused(url: str, file: str) -> None:
    location = Location(url, (Version(file, 1, "t"),))
    with suppress(CacheError):  # it is no name of a hub's file at all
        assert not is_place(location, url)


def test_a_report_of_another_url_is_refused() -> None:
    found = Location("https://h/other", (Version("https://h/m", 1, "t"),))
    assert not is_place(found, "https://h/m")


async def test_a_peer_cannot_have_this_node_read_its_own_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("this machine's")
    about = secret.stat()

    async def answer(_: web.Request) -> web.Response:
        version = [f"file://{secret}", about.st_size, str(about.st_mtime_ns)]
        body = {"location": "https://h/m", "files": [version], "chunks": [None]}
        return web.json_response(body)

    app = web.Application()
    app.router.add_get("/v1/locations", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    async with asyncio.timeout(30):
        assert await PeerUrlIndex(lambda: [f"{host}:{port}"], "t").ask("https://h/m") == []
    await runner.cleanup()
