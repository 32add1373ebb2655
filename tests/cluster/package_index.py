"""A package index beside the nodes: pods reach no other network, and know no authority of ours.

It answers from the index that this machine's own installers ask, and keeps the files in the user's
cache folder. Started as `python -m tests.cluster.package_index HOST PORT`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import os
import re
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import aiohttp
from aiohttp import web
from pip._internal.models.index import PyPI

from tests.cluster.layout import user_cache

_LINK = re.compile(r'href="([^"]+)"')
_PIECE_BYTES = 1 << 20


class PackageIndex:
    """One upstream index as another of the same kind."""

    def __init__(self, upstream: str, kept: Path) -> None:
        """`upstream` is a URL of PEP 503 that ends with a stroke; `kept` is a folder."""
        self._upstream, self._kept = upstream, kept
        self._coming: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def application(self) -> web.Application:
        app = web.Application()
        app.cleanup_ctx.append(self._session)
        app.router.add_get("/simple/{name}/", self._page)
        app.router.add_get("/files/{url}/{name}", self._file)
        return app

    async def _session(self, _: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(trust_env=True) as self._http:
            yield

    async def _page(self, request: web.Request) -> web.Response:
        """A project's files, each by a link that leads here."""
        url = f"{self._upstream}{request.match_info['name']}/"
        async with self._http.get(url, headers={"Accept": "text/html"}) as answer:
            text = await answer.text()
            if answer.status != 200:
                raise web.HTTPNotFound(text=text)
            at = str(answer.url)
        page = _LINK.sub(lambda link: f'href="{_here(urljoin(at, html.unescape(link[1])))}"', text)
        return web.Response(text=page, content_type="text/html")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        """One file, whole or a range of it, fetched once."""
        url = base64.urlsafe_b64decode(request.match_info["url"]).decode()
        place = self._kept / hashlib.sha256(url.encode()).hexdigest()
        async with self._coming[url]:
            if not place.exists():
                await self._fetch(url, place)
        return web.FileResponse(place)

    async def _fetch(self, url: str, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_suffix(f".{os.getpid()}")
        async with self._http.get(url) as answer:
            if answer.status != 200:
                raise web.HTTPNotFound(text=f"{answer.status}")
            with unfinished.open("wb") as file:
                async for piece in answer.content.iter_chunked(_PIECE_BYTES):
                    file.write(piece)
        unfinished.rename(place)


def _here(url: str) -> str:
    """Where this index has a file of another one's."""
    whole, digest = urldefrag(url)
    encoded = base64.urlsafe_b64encode(whole.encode()).decode()
    name = whole.rpartition("/")[2]
    return html.escape(f"/files/{encoded}/{name}" + (f"#{digest}" if digest else ""))


def _upstream() -> str:
    """The index that this machine's installers ask."""
    named = (os.environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"))
    found = next(filter(None, named), PyPI.simple_url)
    return f"{found.rstrip('/')}/"


def main() -> None:
    """Serves until it is ended."""
    host, port = sys.argv[1:]
    index = PackageIndex(_upstream(), user_cache("wheels"))
    web.run_app(index.application(), host=host, port=int(port), print=None)


if __name__ == "__main__":
    main()
