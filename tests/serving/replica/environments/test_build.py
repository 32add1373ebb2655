"""One attempt to build an environment, beside builds that a test ends by hand."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from hotplate.deploy.builds import BuildCommand
from hotplate.machine.free_space import FreeSpace
from hotplate.serving.replica.environments.build import Build, BuildContext
from hotplate.serving.replica.environments.folder import EnvironmentFolder
from hotplate.serving.replica.environments.spec import read_spec
from tests.support.replica.bentos import write_bento


class SlowStep:
    """A program that runs until it is ended, and then takes until `gone` is set."""

    used_too_much = False

    def __init__(self) -> None:
        self.ending, self.gone = asyncio.Event(), asyncio.Event()

    async def wait(self) -> int | None:
        await self.gone.wait()
        return -9

    async def end(self) -> None:
        self.ending.set()
        await self.gone.wait()


class SlowBuilds:
    walled = False
    memory_bytes = 1 << 30

    def __init__(self) -> None:
        self.step = SlowStep()
        self.begun = asyncio.Event()

    async def prepare(self, folder: Path) -> Path:
        return folder

    async def take(self, folder: Path) -> None:
        pass

    async def start(self, command: BuildCommand) -> SlowStep:
        self.begun.set()
        return self.step


async def test_a_build_that_is_cancelled_twice_still_waits_until_nothing_of_it_runs(
    tmp_path: Path,
) -> None:
    """Its folder is removed next: nobody may write there then."""
    builds, folder = SlowBuilds(), EnvironmentFolder(tmp_path / "environment")
    folder.empty()
    spec = read_spec(write_bento(tmp_path / "bento", ""), {"python_version": "3.11"}, {})
    context = BuildContext(tmp_path / "packages", "uv", builds, FreeSpace(tmp_path, 1), 60.0)
    running = asyncio.create_task(Build(spec, folder, Path(sys.executable), context).run())
    await builds.begun.wait()
    running.cancel()
    await builds.step.ending.wait()
    running.cancel()
    await asyncio.wait({running}, timeout=0.05)
    assert not running.done()
    builds.step.gone.set()
    await asyncio.wait({running})
    assert running.cancelled()
