"""Scripts and styles: named by their digests, kept for ever, compressed, and nobody else's."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from hashlib import sha256

import pytest
from aiohttp import ClientSession

from hotplate.platform.dashboard.assets import assets
from hotplate.platform.dashboard.frames import FRAMES
from tests.support.control_plane.cloud import Cloud

IMPORT_MAP = re.compile(r'<script type="importmap">(.*?)</script>')


async def page(cloud: Cloud, path: str) -> tuple[str, str]:
    """Its text and its policy, for who has signed in."""
    cloud.http.headers.clear()
    async with cloud.http.post("/login", data={"token": cloud.token}, allow_redirects=False):
        pass
    async with cloud.http.get(path) as answer:
        assert answer.status == 200
        return await answer.text(), answer.headers["Content-Security-Policy"]


async def test_a_page_names_files_that_there_are_and_lets_only_these_run(cloud: Cloud) -> None:
    text, policy = await page(cloud, "/deployments")
    (import_map,) = IMPORT_MAP.findall(text)
    digest = b64encode(sha256(import_map.encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}'" in policy
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    named = {*json.loads(import_map)["imports"].values()}
    named |= set(re.findall(r'(?:href|src|data-worker)="(/static/[^"]+)"', text))
    assert len(named) > 30
    for path in named:
        async with cloud.http.get(path) as answer:
            assert answer.status == 200, path
            assert "immutable" in answer.headers["Cache-Control"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert sha256(await answer.read()).hexdigest()[:16] in path


async def test_files_come_compressed_to_who_takes_that(cloud: Cloud) -> None:
    (path, found) = next(iter(assets().by_path.items()))
    async with ClientSession(cloud.server.make_url("/"), auto_decompress=False) as http:
        async with http.get(path, headers={"Accept-Encoding": "gzip"}) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert gzip.decompress(await answer.read()) == found.content
        async with http.get(path, headers={"Accept-Encoding": "identity"}) as answer:
            assert await answer.read() == found.content


@pytest.mark.parametrize("name", ["view-0000000000000000.js", "..%2Fassets.py", "x"])
async def test_other_files_are_not_served(cloud: Cloud, name: str) -> None:
    async with cloud.http.get(f"/static/{name}") as answer:
        assert answer.status == 404


def test_each_page_asks_at_once_for_all_that_it_imports() -> None:
    files = assets()
    for frame in FRAMES:
        needed = files.needed("hotplate/start", f"hotplate/pages/{frame.module}")
        assert files.modules["preact"].path in needed
        assert files.modules[f"hotplate/pages/{frame.module}"].path in needed


def test_whatever_is_imported_is_there() -> None:
    files = assets()
    for name, asset in files.modules.items():
        imported = re.findall(r'^\s*(?:import|\}) .*?from "([^"]+)"', asset.content.decode(), re.M)
        assert set(imported) <= set(files.modules), name
