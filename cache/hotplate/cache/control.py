"""What each request to the agent does: trees, pulls, status, metrics."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import asdict
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiohttp import web

from hotplate.cache.catalog.inventory import Inventory
from hotplate.cache.catalog.pulls import Pull, Pulls, failure
from hotplate.cache.catalog.tree_state import TreeState
from hotplate.cache.catalog.trees import Trees
from hotplate.cache.catalog.url_index import UrlIndex, location_json
from hotplate.cache.errors import Unauthorized, UnknownUrl
from hotplate.cache.file_view.agent_side import FileView
from hotplate.cache.leases.lending import Lending
from hotplate.cache.metrics import Metrics
from hotplate.cache.origins.schemes import is_elsewhere
from hotplate.cache.peers.gossip import Gossip
from hotplate.cache.volumes.publishing import Volumes
from hotplate.machine.access.metrics_check import MetricsCheck
from hotplate.machine.access.metrics_page import answer
from hotplate.machine.access.metrics_reader import MetricsReader

_DIGEST = re.compile("[0-9a-f]{64}")


class Control:
    """Answers requests about one node; the README's table says what each call returns."""

    def __init__(
        self,
        *,
        trees: Trees,
        pulls: Pulls,
        ledger: UrlIndex,
        view: FileView,
        metrics: Metrics,
        metrics_check: MetricsCheck,
        lending: Lending,
        gossip: Gossip,
        volumes: Volumes | None = None,
    ) -> None:
        self._trees = trees
        self._pulls = pulls
        self._ledger = ledger
        self._view = view
        self._metrics = metrics
        self._metrics_check = metrics_check
        self._lending = lending
        self._inventory = Inventory(trees, pulls, trees.blob_table, ledger)
        self._gossip = gossip
        self._volumes = volumes

    async def healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def metrics(self, request: web.Request) -> web.Response:
        return answer(request, self._metrics_check, self._metrics.registry)

    async def put_readers(self, request: web.Request) -> web.Response:
        """`{"readers": [{"digest", "expires_at", "organization"}]}`: who reads the metrics."""
        try:
            readers = [MetricsReader.from_json(each) for each in (await request.json())["readers"]]
        except (ValueError, KeyError, TypeError):
            raise web.HTTPBadRequest(reason="the body does not say who reads the metrics") from None
        self._metrics_check.readers.install(readers)
        return web.json_response({"readers": len(readers)})

    async def put_tree(self, request: web.Request) -> web.Response:
        digest, wait = request.match_info["manifest"], request.query.get("wait")
        if wait == "view" and (root := self._view.tree_root(digest)) is not None:
            return web.json_response(await self._show(digest, root))
        tree = await self._trees.bring(digest)
        await tree.until(tree.whole if wait in ("all", "view") else tree.ready)
        return web.json_response(_tree_json(tree))

    async def _show(self, digest: str, root: Path) -> dict[str, Any]:
        """Shows a tree in the view, where its bytes come as they are read."""
        manifest = await self._trees.show(digest)
        verified_bytes = self._trees.verified_bytes(manifest)
        return {
            "root": str(root),
            "view": str(root),
            "absent": [],
            "bytes_total": manifest.size_bytes,
            "bytes_verified": verified_bytes,
            "complete": verified_bytes == manifest.size_bytes,
        }

    async def get_tree(self, request: web.Request) -> web.Response:
        tree = self._trees.get(request.match_info["manifest"])
        if tree.error is not None:
            raise tree.error
        return web.json_response(_tree_json(tree))

    async def troubles(self, request: web.Request) -> web.Response:
        blob_table = self._trees.blob_table
        found = (blob_table.disk_trouble, blob_table.arena_space.trouble)
        refusals = self._volumes.refusals() if self._volumes is not None else []
        return web.json_response({"troubles": [*filter(None, found)], "refusals": refusals})

    async def list_trees(self, request: web.Request) -> web.Response:
        return web.json_response({"idle_s": self._trees.idle_s()})

    async def delete_tree(self, request: web.Request) -> web.Response:
        try:
            idle_s = float(request.query.get("idle_s", "0"))
        except ValueError:
            raise web.HTTPBadRequest(reason="idle_s is not a number") from None
        deleted = await self._trees.delete(request.match_info["manifest"], idle_s)
        return web.json_response({"deleted": deleted})

    async def put_socket(self, request: web.Request) -> web.Response:
        path = Path(_given(request, "path"))
        if not path.is_absolute():
            raise web.HTTPBadRequest(reason="path is not absolute")
        _check_own_machine(request, str(path))
        await self._lending.admit(path, request.query.get("manifests", "").split(","))
        return web.json_response({"path": str(path)})

    async def put_pull(self, request: web.Request) -> web.Response:
        _check_own_machine(request, _url(request))
        began = asyncio.get_running_loop().time()
        to_disk = request.query.get("wait") == "disk"
        pull = self._pulls.start(_url(request), streamed=not to_disk)
        before = pull.traffic
        await self._pulls.ended(pull)
        files = await self._on_disk(pull) if to_disk else {}
        return web.json_response(
            files
            | {
                "bytes": pull.size_bytes,
                "seconds": asyncio.get_running_loop().time() - began,
                "from_origin_bytes": pull.traffic.origin_bytes - before.origin_bytes,
                "from_peers_bytes": pull.traffic.peers_bytes - before.peers_bytes,
            }
        )

    async def _on_disk(self, pull: Pull) -> dict[str, Any]:
        """Waits until each file of a pull is on disk; where it lies. Raises CacheError when it is
        full."""
        assert pull.location is not None  # it has ended
        files = {}
        for version, cached in zip(pull.location.versions, pull.cached_blobs, strict=True):
            await cached.until_on_disk()
            files[version.url] = str(self._trees.blob_table.disk.path(cached.key))
        return {"files": files}

    async def get_pull(self, request: web.Request) -> web.Response:
        pull = self._pulls.get(_url(request))
        if (error := failure(pull)) is not None:
            raise error
        return web.json_response(
            {
                "bytes_total": pull.size_bytes,
                "bytes_verified": pull.verified_bytes,
                "from_origin_bytes": pull.traffic.origin_bytes,
                "from_peers_bytes": pull.traffic.peers_bytes,
                "complete": pull.task.done(),
            }
        )

    async def list_held(self, request: web.Request) -> web.Response:
        items = await self._inventory.items()
        return web.json_response({"items": [asdict(item) for item in items]})

    async def verify_held(self, request: web.Request) -> web.Response:
        return web.json_response(asdict(await self._inventory.verify()))

    async def warm_held(self, request: web.Request) -> web.Response:
        _check_own_machine(request, _name(request))
        return web.json_response({"bytes": await self._inventory.warm(_name(request))})

    async def delete_held(self, request: web.Request) -> web.Response:
        return web.json_response({"bytes": await self._inventory.remove(_name(request))})

    async def get_location(self, request: web.Request) -> web.Response:
        url = _url(request)
        location = self._ledger.location(url)
        if location is None:
            raise UnknownUrl(f"this node has not seen {url}; pull it first")
        blobs = [self._ledger.blob(version) for version in location.versions]
        chunks = [blob.chunks if blob is not None else None for blob in blobs]
        return web.json_response({**location_json(location), "chunks": chunks})

    async def greet(self, request: web.Request) -> web.Response:
        """A greeting of another agent."""
        try:
            return web.json_response(
                self._gossip.receive(request.remote or "", json.loads(await request.text()))
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise web.HTTPBadRequest(reason=f"not a greeting of an agent ({error!r})") from None

    async def status(self, request: web.Request) -> web.Response:
        blob_table = self._trees.blob_table
        blobs = [
            {
                "digest": one.key,
                "path": one.name,
                "size_bytes": one.content.size_bytes,
                "verified_bytes": one.verified_bytes,
                "in_arena": one.in_arena,
                "on_disk": one.on_disk,
                "leases": one.leases,
                "error": str(one.error) if one.error else None,
            }
            for one in blob_table
        ]
        trees = [{"manifest": one.digest, **_tree_json(one)} for one in self._trees.trees]
        return web.json_response(
            {
                "socket": str(self._lending.socket_path),
                "view": self._view.status(),
                "origin_bytes": self._metrics.origin_bytes_total,
                "peers": self._gossip.status(),
                "disk_bytes": blob_table.disk.used_bytes,
                "disk_limit_bytes": blob_table.disk.limit_bytes,
                "disk_trouble": blob_table.disk_trouble,
                "memory_trouble": blob_table.arena_space.trouble,
                "mended_chunks": blob_table.mended_chunks,
                "arena_bytes": blob_table.arena.used_bytes,
                "blobs": blobs,
                "trees": trees,
            }
        )


def _url(request: web.Request) -> str:
    return _given(request, "url").rstrip("/")


def is_same_machine(caller: str, called: str) -> bool:
    """Whether a connection between these addresses cannot have left the machine; "" = unknown."""
    if not (caller and called):
        return False
    return caller == called or all(ip_address(one).is_loopback for one in (caller, called))


def _end(request: web.Request, name: str) -> str:
    """The address of one end of the request's connection; "" once that is gone."""
    end = request.transport.get_extra_info(name) if request.transport is not None else None
    return str(end[0]) if end else ""


def _check_own_machine(request: web.Request, url: str) -> None:
    """Raises Unauthorized for paths of this machine that are asked for from another.

    The cluster's token is no right to read, or to replace, all files of all its machines.
    """
    if is_elsewhere(url) or _DIGEST.fullmatch(url):
        return
    if not is_same_machine(_end(request, "peername"), _end(request, "sockname")):
        raise Unauthorized(
            f"{url} is of this machine's own files, which are asked for on this machine only"
        )


def _name(request: web.Request) -> str:
    return _given(request, "name")


def _given(request: web.Request, name: str) -> str:
    if not (value := request.query.get(name, "")):
        raise web.HTTPBadRequest(reason=f"{name} is missing")
    if "\0" in value:
        raise web.HTTPBadRequest(reason=f"{name} has a NUL")
    return value


def _tree_json(tree: TreeState) -> dict[str, Any]:
    return {
        "root": str(tree.folder.root),
        "view": str(tree.folder.view or ""),
        "absent": sorted(tree.folder.absent),
        "bytes_total": tree.manifest.size_bytes,
        "bytes_verified": tree.bytes_verified,
        "complete": tree.complete,
    }
