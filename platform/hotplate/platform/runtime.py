"""The BentoML runtime as the engine wants it: same work, the engine's own error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hotplate.deploy.engine import Command, Phase, Recorder, Warm, Workload
from hotplate.deploy.errors import PrepareFailed
from hotplate.serving.replica.errors import ReplicaError
from hotplate.serving.replica.runtime import BentoRuntime


class EngineRuntime:
    """`serving` and `deploy` do not know each other; here they meet."""

    def __init__(self, bentos: BentoRuntime) -> None:
        self._bentos = bentos

    async def prepare(
        self, workload: Workload, replica: str, directory: str, recorder: Recorder
    ) -> Command:
        try:
            made = await self._bentos.prepare(workload, replica, directory, recorder)
        except ReplicaError as error:
            raise PrepareFailed(
                str(error), retry=error.retry, no_room=error.no_room, log=error.log
            ) from error
        warm = None if made.warm is None else Warm(**vars(made.warm))
        return Command(**{**vars(made), "warm": warm})

    async def keep(self, directory: str, *, ended: bool) -> None:
        await self._bentos.keep(directory, ended=ended)

    async def told(self, directory: str) -> Mapping[str, Any] | None:
        return await self._bentos.told(directory)

    async def phases(self, directory: str) -> Sequence[Phase]:
        return [Phase(p.name, p.start, p.end) for p in await self._bentos.phases(directory)]
