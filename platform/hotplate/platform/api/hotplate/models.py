"""Our own route about a model: its files, who uses it, and which nodes have how much of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from hotplate.cache.errors import UnknownUrl
from hotplate.cache.origins.hub_url import HubUrl
from hotplate.cache.origins.locations import hide
from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.bentocloud.artifacts import named
from hotplate.platform.store.artifacts import Artifacts
from hotplate.platform.store.records import Artifact, Kind

Holdings = Mapping[str, Sequence[Mapping[str, Any]]]
"""What each node that answers has, as its agent says it (`AgentClient.held`)."""


async def no_holdings() -> Holdings:
    """Of an API without nodes."""
    return {}


class ModelRoutes:
    """Models of the caller's organization."""

    def __init__(
        self,
        artifacts: Artifacts,
        blobs: BlobStore,
        holdings: Callable[[], Awaitable[Holdings]] = no_holdings,
    ) -> None:
        self._artifacts = artifacts
        self._blobs = blobs
        self._holdings = holdings

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/v1/hotplate/models/{name}/{version}", self.get)]

    async def get(self, request: web.Request) -> web.Response:
        """`GET /api/v1/hotplate/models/{name}/{version}`. Raises NotFound. A model that stays at
        its hub, or is still being pushed, has no files here."""
        model = await named(Kind.MODEL, self._artifacts, request)
        users = await self._artifacts.run(self._artifacts.users, model)
        files, holdings = await asyncio.gather(self._files(model), self._holdings())
        return web.json_response(
            {
                "tag": model.tag,
                "size_bytes": model.size_bytes,
                "files": files,
                "used_by": users,
                "nodes": [_held(node, held, model) for node, held in sorted(holdings.items())],
            }
        )

    async def _files(self, model: Artifact) -> list[dict[str, Any]]:
        if not model.files:
            return []
        manifest = await asyncio.to_thread(self._blobs.get_manifest, model.files)
        return [
            {"path": entry.path, "size_bytes": entry.blob.size_bytes}
            for entry in manifest.entries
            if entry.blob is not None
        ]


def _held(node: str, held: Sequence[Mapping[str, Any]], model: Artifact) -> dict[str, Any]:
    name = _hub_name(model) if model.hugging_face else model.files
    mine = [one for one in held if name and one["name"] == name]
    return {
        "name": node,
        **{tier: sum(int(one[tier]) for one in mine) for tier in ("memory_bytes", "disk_bytes")},
    }


def _hub_name(model: Artifact) -> str:
    """What agents call a model that stays at its hub; empty where it does not say which it is."""
    about = model.manifest.get("metadata")
    if not isinstance(about, Mapping) or not about.get("model_id"):
        return ""
    try:
        return hide(str(HubUrl(str(about["model_id"]), str(about.get("revision") or "main"))))
    except UnknownUrl:
        return ""
