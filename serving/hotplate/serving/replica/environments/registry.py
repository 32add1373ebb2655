"""Environments that a node has built, for all nodes of a cluster: as manifests.

The blob store's note `environments/<key>` names the manifest of an organization's environment. A
node that lacks the environment takes it from there: through its file view in about a second, while
the bytes come as they are read; without a view, as a folder of links and copies. So nothing is
built twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from hotplate.cache.errors import CacheError
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.packing import pack_tree
from hotplate.serving.replica.node_agent import TreeSource

log = logging.getLogger("hotplate.environments")

_KIND = "environments"
BENTOS_KEPT = 1000
"""How many bentos a note names: those that came last."""


@dataclass(frozen=True)
class PublishedEnvironment:
    """An environment that another node has built."""

    manifest: str
    root: Path
    interpreter: Path
    """The path as the other node's platform has chosen it, which is the same here."""


class EnvironmentRegistry:
    """The environments in one blob store."""

    def __init__(self, blobs: BlobStore, agent: TreeSource) -> None:
        self._blobs = blobs
        self._agent = agent

    async def take(self, owner: str, digest: str, bento: str) -> PublishedEnvironment | None:
        """The owner's environment of that digest, if a node has published one that runs here; from
        now on the bento uses it."""
        try:
            note = await asyncio.to_thread(self._use, owner, digest, bento)
            if note is None or not os.access(note["interpreter"], os.X_OK):
                return None
            tree = await self._agent.tree(note["manifest"], wait="view")
        except (CacheError, KeyError) as error:
            log.warning("environment %s is built here: %r", digest, error)
            return None
        return PublishedEnvironment(note["manifest"], Path(tree.root), Path(note["interpreter"]))

    async def publish(
        self, owner: str, digest: str, bento: str, folder: Path, interpreter: Path
    ) -> None:
        """Publishes an environment that a bento uses, unless it cannot be moved."""
        try:
            await asyncio.to_thread(self._publish, owner, digest, bento, folder, interpreter)
        except (CacheError, OSError, RecursionError) as error:
            log.warning("environment %s stays on this node: %s", digest, error)

    async def use(self, owner: str, digest: str, bento: str) -> None:
        """One more bento uses it here."""
        try:
            await asyncio.to_thread(self._use, owner, digest, bento)
        except CacheError as error:
            log.warning("it is not noted that environment %s is used: %s", digest, error)

    def _use(self, owner: str, digest: str, bento: str) -> dict[str, Any] | None:
        """The note, which names its bentos: what a deployment begins to use is not removed."""
        name = note_name(owner, digest)
        with self._blobs.hold():
            note = self._blobs.get_note(name)
            if note is not None and bento not in note.get("bentos", ()):
                note["bentos"] = [*note.get("bentos", ()), bento][-BENTOS_KEPT:]
                self._blobs.put_note(name, note)
            return note

    def _publish(
        self, owner: str, digest: str, bento: str, folder: Path, interpreter: Path
    ) -> None:
        if (script := bound_script(folder)) is not None:
            log.warning("environment %s stays on this node: %s names its folder", digest, script)
            return
        with self._blobs.hold() as hold:
            note = {
                "manifest": pack_tree(folder, self._blobs, hold.renew).digest,
                "interpreter": str(interpreter),
                "organization": owner,
                "bentos": [bento],
            }
            self._blobs.put_note(note_name(owner, digest), note)


def bound_script(folder: Path) -> Path | None:
    """A script that runs only where it was installed: its first line names the folder."""
    for path in sorted((folder / "bin").iterdir()):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                first = file.readline(4096)
            if first.startswith(b"#!") and os.fsencode(folder) in first:
                return path
    return None


def note_name(owner: str, digest: str) -> str:
    """The note of an environment. Compiled code runs on one kind of machine, with one C library."""
    kind = f"{owner} {digest} {platform.machine()} {' '.join(platform.libc_ver())}"
    return f"{_KIND}/{blake3(kind.encode()).hexdigest()}"
