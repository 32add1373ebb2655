"""An agent with a file view, at an origin that obeys the test."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from hotplate.cache.client import AgentClient
from hotplate.cache.file_view import mounting as view_mount
from hotplate.cache.manifest import CHUNK_BYTES, Manifest, ManifestEntry
from hotplate.cache.origins.blob_source import FsspecOrigin
from tests.support.cache.fakes import (
    AgentProcess,
    OriginServer,
    PacedOrigin,
    blob_of,
    publish,
    random_bytes,
)


def _why_not() -> str:
    if os.getuid() != 0:
        return "mounting needs root"
    return "" if os.path.exists(view_mount.DEVICE) else f"there is no {view_mount.DEVICE}"


needs_mounts = pytest.mark.skipif(bool(_why_not()), reason=_why_not())

SCRIPT = b"#!/bin/sh\necho here\n"
PACK = b"one" + b"three"


class Model:
    """A tree with weights of its own."""

    def __init__(self, store: Path, mount: Path, seed: int) -> None:
        self.content = random_bytes(2 * CHUNK_BYTES + 5, seed)
        self.blob = blob_of(self.content)
        files = {
            "model.safetensors": self.content,
            "bin/run.sh": SCRIPT,
            "empty": None,
            "none": b"",
        }
        publish(store, {"pack": PACK})
        entries = (
            *publish(store, files).entries,
            ManifestEntry("one", 0o644, 1e9, blob_of(PACK), part=(0, 3)),
            ManifestEntry("three", 0o644, 1e9, blob_of(PACK), part=(3, 5)),
            ManifestEntry("link", 0o777, 1e9, link="bin/run.sh"),
        )
        manifest = Manifest(entries)
        self.digest = manifest.digest
        (store / "manifests" / f"{self.digest}.json").write_bytes(manifest.to_bytes())
        self.root = mount / "trees" / self.digest
        self.weights = self.root / "model.safetensors"


class Bench:
    """An agent with a view, at an origin that obeys the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mount = folder / "view"
        self._store = folder / "store"
        self._store.mkdir()
        self.origin = PacedOrigin(FsspecOrigin(f"file://{self._store}"))
        self.server = OriginServer(self._store, self.origin)
        self.agent: AgentProcess | None = None

    def start(self, data: str = "data", **options: Any) -> AgentProcess:
        return AgentProcess(self.folder / data, self.server.url, mount=self.mount, **options)

    def model(self, agent: AgentProcess, seed: int) -> Model:
        """One that the agent shows, and has no weights of yet."""
        model = Model(self._store, self.mount, seed)
        tree = ask(agent, "tree", model.digest, wait="view")
        assert (tree.root, tree.complete) == (str(model.root), False)
        return model

    @property
    def mounted(self) -> bool:
        return bool(view_mount.mounted_at(self.mount))

    def close(self) -> None:
        self.origin.release()
        self.server.close()
        for one in view_mount.mounted_at(self.mount):
            view_mount.unmount(one.source)


def ask(agent: AgentProcess, method: str, *arguments: Any, **options: Any) -> Any:
    async def call() -> Any:
        client = AgentClient(agent.url)
        try:
            return await getattr(client, method)(*arguments, **options)
        finally:
            await client.close()

    return asyncio.run(call())
