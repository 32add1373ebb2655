"""The models of a replica: there as soon as all but their weights are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hotplate.cache.client import TreeInfo
from hotplate.cache.errors import CacheError, NoSpace, UnknownBlob, UnknownManifest
from hotplate.deploy.phases import Recorder
from hotplate.deploy.workload import Model, Workload
from hotplate.serving.replica.errors import FilesUnavailable
from hotplate.serving.replica.node_agent import NodeAgent

AGENT_SOCKET = "agent.sock"
"""The replica's own socket of the node's agent, in its own folder: it leads to its models and no
others."""


@dataclass(frozen=True)
class Models:
    """The models of one replica."""

    trees: tuple[tuple[Model, str], ...] = ()
    """Each with the folder of its files."""
    reads: tuple[str, ...] = ()
    """Where their files are, and where links lead while files still arrive."""
    absent: tuple[str, ...] = ()
    """Files that do not exist before they have arrived."""


class ModelFolders:
    """Gives replicas their models, and watches them arrive."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._arriving: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Stop watching; replicas go on running."""
        for task in self._arriving:
            task.cancel()
        await asyncio.gather(*self._arriving, return_exceptions=True)

    async def bring(self, workload: Workload, socket: Path, recorder: Recorder) -> Models:
        """Have their files on this node, with a door to them at `socket`. Raises
        FilesUnavailable."""
        if not workload.models:
            return Models()
        recorder.begin("weights")
        trees = await asyncio.gather(
            *(bring_tree(self._agent, model.manifest, wait="files") for model in workload.models)
        )
        await self._admit(workload, socket)
        arriving = {
            model.manifest: tree
            for model, tree in zip(workload.models, trees, strict=True)
            if not tree.complete
        }
        if arriving:
            task = asyncio.create_task(self._see_arrive(list(arriving), recorder))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)
        else:
            recorder.end("weights")
        views = [tree.view for tree in arriving.values() if tree.view]
        return Models(
            tuple((model, tree.root) for model, tree in zip(workload.models, trees, strict=True)),
            (*(tree.root for tree in trees), *views),
            tuple(f"{tree.root}/{path}" for tree in arriving.values() for path in tree.absent),
        )

    async def _admit(self, workload: Workload, socket: Path) -> None:
        try:
            await self._agent.admit(str(socket), [model.manifest for model in workload.models])
        except CacheError as error:
            raise FilesUnavailable(str(error), retry=True) from error

    async def _see_arrive(self, manifests: Sequence[str], recorder: Recorder) -> None:
        """Note when the last file is whole; the process's own report on its weights has
        precedence."""
        try:
            await asyncio.gather(*(bring_tree(self._agent, m, wait="all") for m in manifests))
        except FilesUnavailable:
            return  # the process that reads them gets the error, and says it in its log
        recorder.end("weights")


async def bring_tree(agent: NodeAgent, manifest: str, *, wait: Literal["files", "all"]) -> TreeInfo:
    """The files of a manifest. Raises FilesUnavailable."""
    try:
        return await agent.tree(manifest, wait=wait)
    except CacheError as error:
        retry = not isinstance(error, (UnknownManifest, UnknownBlob))
        no_room = isinstance(error, NoSpace)
        raise FilesUnavailable(str(error), retry=retry, no_room=no_room) from error
