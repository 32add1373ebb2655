"""What a replica's preparation needs of the node's agent: a part of the cache's `AgentClient`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

from hotplate.cache.client import TreeInfo


class TreeSource(Protocol):
    """Gives the files of a manifest as a folder."""

    async def tree(self, manifest: str, wait: Literal["view", "files", "all"]) -> TreeInfo:
        """The folder. With `"files"`, `*.safetensors` may still be arriving: they are links to
        where reads wait for them, cannot be opened, or are `absent`. With `"view"` any file may.

        Raises `hotplate.cache.errors.CacheError`.
        """


class NodeAgent(TreeSource, Protocol):
    """Everything that a replica's preparation needs."""

    async def admit(self, path: str, manifests: Iterable[str]) -> None:
        """Opens a socket at `path` that leads to these manifests' files while its folder exists.
        Raises `hotplate.cache.errors.CacheError`."""

    async def pull_to_disk(self, url: str) -> Mapping[str, str]:
        """All files of a URL: each one's path on this node, by its own URL. Raises CacheError."""
