"""Python environments of bentos: built once per recipe, shared by the replicas of a node."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from hotplate.cache.errors import NoSpace
from hotplate.cache.room import Room, full, is_full
from hotplate.serving.replica.diagnosis import diagnose
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.home import copy_bento
from hotplate.serving.replica.inherited import for_build
from hotplate.serving.replica.recipe import Recipe, read_recipe
from hotplate.serving.replica.shelf import Shelf, Taken
from hotplate.serving.replica.usage import Usage, superfluous

BUILD_LOG = "build.log"
LOG_TAIL_LINES = 20
ROOM_CHECK_S = 0.2
"""Between looks at the disk while a step runs: a fast disk takes a few 100 MiB meanwhile."""
_GONE = ".gone-"
ENVIRONMENTS = "HOTPLATE_ENVIRONMENTS"
"""Names the folder of the environments to the processes that build in it, and them to whoever
comes after us: a build outlives a process that is killed, and nobody waits for it any more."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment that is ready."""

    python: Path
    digest: str
    built: bool
    """Whether the caller had to wait for it to be built."""


class Environments:
    """The environments under one folder, which belongs to this process alone.

    `<root>/<digest>/<attempt>/` is a virtual environment; `<root>/<digest>/ready`, written last,
    names the attempt that succeeded. An attempt that a kill left behind, and which may still be
    written by its `uv`, is never built upon. `<root>/<digest>/taken` names an environment that
    another node has built. `<root>/.used/` says who uses which.
    """

    def __init__(
        self,
        root: Path,
        uv: str | None = None,
        disk_reserve_bytes: int = 0,
        shelf: Shelf | None = None,
    ) -> None:
        """`disk_reserve_bytes` of the disk are left free; 0 = the usual. What is on the `shelf` is
        not built, and what is built is put there."""
        self._root = root
        self._room = Room(root, disk_reserve_bytes)
        self._uv = uv or find_uv_bin()
        self._usage = Usage(root / ".used")
        self._shelf = shelf
        self._building: dict[str, asyncio.Task[Path]] = {}
        self._putting: set[asyncio.Task[None]] = set()

    async def ensure(
        self,
        bento: Path,
        image: Mapping[str, Any],
        build_env: Mapping[str, str],
        tell: Callable[[str], None] = lambda log: None,
    ) -> Environment:
        """The environment of an unpacked bento; built now if there is none yet.

        A bento is known by the name of its folder, the digest of its files. `image` is the mapping
        of that name in `bento.yaml`; `build_env` is set while building. `tell` is told the file
        that the build's output goes to while the caller waits for one, and then "".
        A caller that is cancelled leaves the build going on for the others. Raises
        `BentoUnusable`, `EnvironmentFailed`.
        """
        recipe = await asyncio.to_thread(read_recipe, bento, image, build_env)
        self._usage.note(recipe.digest, bento.name)  # on the loop, as is its opposite in `sweep`
        building = self._building.get(recipe.digest)
        if building is None:
            if python := await asyncio.to_thread(self._ready, recipe.digest):
                return Environment(python, recipe.digest, built=False)
            building = self._building.get(recipe.digest) or self._start(recipe)
        tell(str(self.log_path(recipe.digest)))
        try:
            return Environment(await asyncio.shield(building), recipe.digest, built=True)
        finally:
            tell("")

    def modules_path(self, digest: str) -> Path:
        """Where the last replica of an environment notes what it had imported when it was ready."""
        return self._root / digest / "modules.json"

    def log_path(self, digest: str) -> Path:
        """Where the output of the last build of an environment is."""
        return self._root / digest / BUILD_LOG

    async def sweep(self, wanted: Set[str], spare: int) -> dict[str, str]:
        """Remove what no `wanted` bento uses, but for the `spare` ones used last; with reasons.

        An environment of which no use is on record stays.
        """
        uses = [use for use in self._usage.read() if use.environment not in self._building]
        gone = superfluous(uses, wanted, spare)
        for digest in gone:
            with suppress(FileNotFoundError):
                # Nobody who asks from now on takes for an environment what is being removed.
                (self._root / digest).rename(self._root / f"{_GONE}{uuid.uuid4().hex}")
            self._usage.forget(digest)
        for use in uses:
            if use.environment not in gone:
                self._usage.trim(use.environment, wanted)
        for folder in self._root.glob(f"{_GONE}*"):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return gone

    async def close(self) -> None:
        """Stop what is being built."""
        building = [*self._building.values(), *self._putting]
        for task in building:
            task.cancel()
        await asyncio.gather(*building, return_exceptions=True)

    def _start(self, recipe: Recipe) -> asyncio.Task[Path]:
        # Nobody who is told of the log is to read what an earlier build has left there.
        self.log_path(recipe.digest).unlink(missing_ok=True)
        task = asyncio.create_task(self._take_or_build(recipe))
        self._building[recipe.digest] = task

        def done(task: asyncio.Task[Path]) -> None:
            del self._building[recipe.digest]
            if not task.cancelled():
                task.exception()  # every waiter may have been cancelled

        task.add_done_callback(done)
        return task

    def _ready(self, digest: str) -> Path | None:
        with suppress(FileNotFoundError):
            attempt = (self._root / digest / "ready").read_text(encoding="utf-8")
            python = self._root / digest / attempt / "bin" / "python"
            if python.exists():  # its interpreter may have been uninstalled
                return python
        with suppress(OSError, ValueError, KeyError):  # its agent may be down, or not show it yet
            python = Path(self._taken(digest)["python"])
            if python.exists():
                return python
        return None

    def manifests(self) -> set[str]:
        """Of the environments that were taken from other nodes, and are to stay."""
        found = set()
        for folder in self._root.glob("*/taken"):
            with suppress(OSError, ValueError, KeyError):
                found.add(str(self._taken(folder.parent.name)["manifest"]))
        return found

    def _taken(self, digest: str) -> dict[str, str]:
        taken: dict[str, str] = json.loads((self._root / digest / "taken").read_bytes())
        return taken

    async def _take_or_build(self, recipe: Recipe) -> Path:
        """Raises `EnvironmentFailed`."""
        taken = await self._shelf.take(recipe.digest) if self._shelf is not None else None
        if taken is not None:
            await asyncio.to_thread(self._note_taken, recipe.digest, taken)
            return taken.python
        python = await self._build(recipe)
        if self._shelf is not None:
            put = asyncio.create_task(self._shelf.put(recipe.digest, python.parent.parent))
            self._putting.add(put)
            put.add_done_callback(self._putting.discard)
        return python

    def _note_taken(self, digest: str, taken: Taken) -> None:
        folder = self._root / digest
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / "taken.draft"
        draft.write_text(json.dumps({"manifest": taken.manifest, "python": str(taken.python)}))
        draft.replace(folder / "taken")

    async def _build(self, recipe: Recipe) -> Path:
        """Raises `EnvironmentFailed`."""
        build = _Build(recipe, self._root / recipe.digest, self._uv, self._room)
        try:
            await asyncio.to_thread(build.clear)
            await build.run()
            await asyncio.to_thread(build.mark_ready)
        except BaseException as error:
            await asyncio.to_thread(shutil.rmtree, build.attempt, ignore_errors=True)
            if isinstance(error, NoSpace):
                raise EnvironmentFailed(str(error), retry=True, no_room=True) from error
            if isinstance(error, OSError) and is_full(error):
                raise EnvironmentFailed(
                    full(error, self._root), retry=True, no_room=True
                ) from error
            raise
        finally:
            await asyncio.to_thread(shutil.rmtree, build.scratch, ignore_errors=True)
        return build.python


class _Build:
    """One attempt to build one environment."""

    def __init__(self, recipe: Recipe, folder: Path, uv: str, room: Room) -> None:
        self.recipe = recipe
        self.folder = folder
        self.attempt = folder / uuid.uuid4().hex[:8]
        self.scratch = folder / f"{self.attempt.name}.bento"
        self.python = self.attempt / "bin" / "python"
        self._uv = uv
        self._log = folder / BUILD_LOG
        self._room = room
        inherited = for_build(os.environ)
        self._env = {
            **inherited,
            **recipe.build_env,
            "PATH": os.pathsep.join(
                (str(self.python.parent), str(Path(uv).parent), inherited.get("PATH", os.defpath))
            ),
            "VIRTUAL_ENV": str(self.attempt),
            ENVIRONMENTS: str(folder.parent),
            "UV_PYTHON_DOWNLOADS": "never",  # an interpreter may take minutes, or be refused
            "UV_COMPILE_BYTECODE": "1",  # else every replica compiles torch at its start
            "UV_NO_PROGRESS": "1",
            "NO_COLOR": "1",
        }

    def clear(self) -> None:
        """Remove what an earlier attempt left."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    async def run(self) -> None:
        """All steps. Raises `EnvironmentFailed`, `NoSpace`, and OSError for a full disk."""
        recipe = self.recipe
        for command in recipe.skipped_commands:
            self._write(f"# not run, it is for a container's system: {command}\n")
        # Another node has it in another folder.
        venv = [self._uv, "venv", "--relocatable", "--python", recipe.python_version]
        await self._step("uv venv", [*venv, str(self.attempt)])
        install = [self._uv, "pip", "install", "--python", str(self.python)]
        sources = recipe.bento / "src"  # local wheels are named relative to it
        await self._step(
            "uv pip install",
            [*install, "-r", str(recipe.requirements)],
            cwd=sources if sources.is_dir() else recipe.requirements.parent,
        )
        if recipe.post_commands:
            await asyncio.to_thread(copy_bento, recipe.bento, self.scratch)
        for command in recipe.post_commands:
            await self._step(command, ["/bin/sh", "-c", command], cwd=self.scratch)

    def mark_ready(self) -> None:
        draft = self.folder / "ready.draft"
        draft.write_text(self.attempt.name, encoding="utf-8")
        draft.replace(self.folder / "ready")

    async def _step(self, name: str, argv: Sequence[str], cwd: Path | None = None) -> None:
        self._room.check(0)
        self._write(f"$ {' '.join(argv)}\n")
        start = self._log.stat().st_size
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd or self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            status = await self._ended(process)
        except (asyncio.CancelledError, NoSpace):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
        if status != 0:
            output = self._log.read_bytes()[start:].decode(errors="replace")
            diagnosis = diagnose(output, self.recipe.python_version, name)
            raise EnvironmentFailed(
                diagnosis.sentence,
                retry=diagnosis.retry,
                no_room=diagnosis.no_room,
                log=tuple(output.splitlines()[-LOG_TAIL_LINES:]),
            )

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        """Its exit status. Raises NoSpace as soon as it eats into the disk's reserve."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(ROOM_CHECK_S):
                    return await process.wait()
            self._room.check(0)

    def _write(self, text: str) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(text)
