"""Runs what builds environments: code that nobody here has read, and that is no replica's.

Each program is within walls and in a control group of its own. Those of all builds together may
use so much memory, and weigh as much as the platform's own processes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import suppress
from pathlib import Path

from hotplate.deploy.builds import BuildCommand
from hotplate.deploy.errors import DeployError
from hotplate.deploy.process.detached import Process
from hotplate.deploy.sandbox import resource_limits as guard
from hotplate.deploy.sandbox.cgroups import Cgroups, end_groups
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR, ProcessScope
from hotplate.deploy.sandbox.visible_files import VisibleFiles
from hotplate.deploy.workload import Resources


class BuildProgram:
    """One program, with all that it has started."""

    def __init__(self, process: Process, scope: ProcessScope, limit_bytes: int) -> None:
        self.used_too_much = False
        self._process = process
        self._scope = scope
        self._guard = asyncio.create_task(self._watch(limit_bytes))
        self._ended = asyncio.create_task(self._end())

    async def wait(self) -> int | None:
        return await asyncio.shield(self._ended)

    async def end(self) -> None:
        await self._process.terminate(0)
        await self.wait()

    async def _end(self) -> int | None:
        code = await self._process.wait()
        self._guard.cancel()
        self.used_too_much = bool(self._scope.excess())
        with suppress(OSError):
            self._scope.remove()
        return code

    async def _watch(self, limit_bytes: int) -> None:
        await guard.until_excess(self._scope, limit_bytes)
        await self._process.terminate(0)


class Builds:
    """Those of one platform."""

    def __init__(self, isolation: Isolation, cgroups: Cgroups, memory_bytes: int) -> None:
        """Builds use `memory_bytes` at most together, in groups of `cgroups`, which are theirs."""
        self.memory_bytes = memory_bytes
        self._isolation = isolation
        self._cgroups = cgroups
        self._numbers = itertools.count()
        self._prepared: set[Path] = set()

    @property
    def walled(self) -> bool:
        return not self._isolation.refusal

    async def end_leftovers(self) -> None:
        """End what was being built for a control plane that was killed. Raises OSError."""
        await end_groups(self._cgroups.leftovers(()))

    async def prepare(self, folder: Path) -> Path:
        if folder not in self._prepared:
            await asyncio.to_thread(folder.mkdir, mode=0o755, parents=True, exist_ok=True)
            await self._isolation.give_builds(folder)
            self._prepared.add(folder)
        return folder

    async def take(self, folder: Path) -> None:
        await self._isolation.take(folder)

    async def start(self, command: BuildCommand) -> BuildProgram:
        """As `BuildRunner` has it."""
        own = command.own
        name = f"{own.name}-{os.getpid()}-{next(self._numbers)}"
        scope = await self._cgroups.make(name, own, Resources(memory_bytes=self.memory_bytes))
        reads, writes = tuple(map(str, command.reads)), tuple(map(str, command.writes))
        # By this variable they are found where there are no control groups, and by our successor.
        marked = {**command.env, REPLICA_DIR: str(own)}
        try:
            process = await self._isolation.spawn(
                command.argv,
                marked,
                command.cwd,
                command.log,
                view=VisibleFiles(reads, writes, own=str(own)),
                scope=scope,
                stdin_json=command.stdin_json,
            )
        except DeployError as error:
            scope.remove()
            raise OSError(str(error)) from error
        except BaseException:  # also when interrupted: cleaned up, and raised again
            scope.remove()
            raise
        return BuildProgram(process, scope, self.memory_bytes)

    def close(self) -> None:
        self._cgroups.close()
