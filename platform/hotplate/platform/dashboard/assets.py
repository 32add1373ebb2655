"""The dashboard's scripts and styles: read once, named by their digests, kept by browsers for ever.

Scripts name each other by what the import map says: `hotplate/<path in static>` for our own, and
what `vendor.toml` says for others'. So what is in the tree is what a browser gets.
"""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

from aiohttp import web

_HERE = Path(__file__).parent
ROOT = "/static/"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_IMPORTS = re.compile(r"""(?:\bfrom|^import)\s*["']([^"']+)["']""", re.MULTILINE)
STYLES = (_HERE / "style.css", _HERE / "vendor/uplot.css", _HERE / "static/pages.css")
"""Joined into one, in this order."""
ICON = _HERE / "static/icon.svg"


@dataclass(frozen=True)
class Asset:
    """A file as it is served."""

    name: str
    suffix: str
    content: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        return sha256(self.content).hexdigest()[:16]

    @property
    def path(self) -> str:
        return f"{ROOT}{self.name}-{self.digest}{self.suffix}"

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.content, 9, mtime=0)


@dataclass(frozen=True)
class Assets:
    """All of them."""

    modules: Mapping[str, Asset]
    """By the names that scripts import them by."""
    style: Asset
    icon: Asset

    @cached_property
    def import_map(self) -> str:
        """JSON, as it stands in a page."""
        paths = {name: asset.path for name, asset in self.modules.items()}
        return json.dumps({"imports": paths}, separators=(",", ":"))

    @cached_property
    def import_map_digest(self) -> str:
        """As a policy names it."""
        return f"'sha256-{b64encode(sha256(self.import_map.encode()).digest()).decode()}'"

    @cached_property
    def by_path(self) -> Mapping[str, Asset]:
        return {asset.path: asset for asset in (*self.modules.values(), self.style, self.icon)}

    def needed(self, *names: str) -> list[str]:
        """The paths of these modules and of all that they import, so that a browser asks for all
        of them at once."""
        found: dict[str, None] = {}
        for name in names:
            self._add(name, found)
        return [self.modules[name].path for name in found]

    def _add(self, name: str, found: dict[str, None]) -> None:
        if name in found or name not in self.modules:
            return
        found[name] = None
        for imported in _IMPORTS.findall(self.modules[name].content.decode()):
            self._add(imported, found)


@cache
def assets() -> Assets:
    """Those of this installation."""
    modules = {
        name: Asset(name.replace("/", "-").removeprefix("@"), path.suffix, path.read_bytes())
        for name, path in sorted(_modules())
    }
    style = b"\n".join(path.read_bytes() for path in STYLES)
    return Assets(modules, Asset("style", ".css", style), Asset("icon", ".svg", ICON.read_bytes()))


def _modules() -> Iterator[tuple[str, Path]]:
    static = _HERE / "static"
    for path in static.rglob("*.js"):
        yield f"hotplate/{path.relative_to(static).with_suffix('').as_posix()}", path
    for package in tomllib.loads((_HERE / "vendor.toml").read_text())["package"]:
        for file in package["file"]:
            if "import" in file:
                yield file["import"], _HERE / "vendor" / file["path"]


async def serve(request: web.Request) -> web.Response:
    """`GET /static/{name}`: the file, compressed where the browser takes that."""
    found = assets().by_path.get(request.path)
    if found is None:
        raise web.HTTPNotFound
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    content = found.content
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        content = found.compressed
        headers["Content-Encoding"] = "gzip"
    return web.Response(
        body=content, content_type=_TYPES[found.suffix], charset="utf-8", headers=headers
    )
