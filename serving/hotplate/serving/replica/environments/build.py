"""One attempt to build one environment: `uv`, and the commands of the bento's author, in isolation.

All of this is code that we do not trust: `setup.py` of any package, `post_commands`. It sees its
own folder, its organization's packages, `uv`, the interpreter and the bento.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotplate.cache.errors import NoSpace
from hotplate.deploy.builds import BuildCommand, BuildRunner, BuildStep
from hotplate.machine import foreign_folder
from hotplate.machine.background import until_done
from hotplate.machine.free_space import FreeSpace
from hotplate.serving.replica.environments.folder import VENV, EnvironmentFolder, ReadyEnvironment
from hotplate.serving.replica.environments.masked_log import masked_log
from hotplate.serving.replica.environments.spec import EnvironmentSpec
from hotplate.serving.replica.environments.steps import BuildPlaces, notes, steps, variables
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.inherited import certificates, for_build
from hotplate.serving.replica.inside import secret_files
from hotplate.serving.replica.inside.building.step import (
    MOST_LOG_BYTES,
    TAIL_BYTES,
    Step,
    StepFailure,
    after,
    printed_too_much,
)
from hotplate.serving.replica.inside.own_folder import copy_bento
from hotplate.serving.replica.memory_folders import memory_folder, remove_memory

LOOK_S = 0.2
"""Seconds between checks of the disk while a step runs: a fast disk takes a few 100 MiB
meanwhile."""
_COMPILER = Path(__file__).with_name("bytecode.py")
HOME, BENTO = "home", "bento"
SECRETS_HOME = "bentoml"
"""Folders of one attempt, while it runs; the last one is `$BENTOML_HOME`, where there are files of
secrets."""
_PASSING = (HOME, BENTO, SECRETS_HOME, "tmp")
_CONFIGURATION = "uv/uv.toml"
"""The settings of `uv`, below the configuration folder of the platform's user."""


@dataclass(frozen=True)
class BuildContext:
    """What all builds of one organization share."""

    packages: Path
    """Where `uv` keeps its downloads and builds."""
    uv: str
    builds: BuildRunner
    room: FreeSpace
    limit_s: float
    """How long a build may take."""


class Build:
    """One attempt; `run` it, then `close` it in any case."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        folder: EnvironmentFolder,
        interpreter: Path,
        context: BuildContext,
    ) -> None:
        self.attempt = uuid.uuid4().hex[:8]
        self._spec = spec
        self._folder = folder
        self._context = context
        self._own = folder.path / self.attempt
        self.found = ReadyEnvironment(self._own / VENV, interpreter)
        self._packages = context.packages
        self._log = masked_log(folder.log, spec.secrets.texts)
        self._env: Mapping[str, str] = {}

    async def run(self) -> None:
        """Runs all steps. Raises `EnvironmentFailed`, `NoSpace`, and OSError for a full disk."""
        try:
            async with asyncio.timeout(self._context.limit_s):
                with self._log:
                    await self._run()
        except TimeoutError:
            raise EnvironmentFailed(
                f"Building the environment took longer than {self._context.limit_s:g} s "
                "(build_timeout_s); find out in its log what it waits for, or raise the limit."
            ) from None
        await foreign_folder.aside(self._check)
        try:
            await self._context.builds.take(self.found.root)
        except OSError as error:
            raise EnvironmentFailed(
                f"The environment cannot be used as it was built ({error.strerror}); have the "
                "bento's commands leave it as packages do."
            ) from error

    async def close(self, *, failed: bool) -> None:
        """Remove what only the build needed; all of it if it `failed`."""
        if self._spec.secrets:
            await remove_memory(self._own)
        gone = [self._own] if failed else [self._own / name for name in _PASSING]
        for path in gone:
            with suppress(OSError):
                await foreign_folder.aside_for_long(foreign_folder.remove_tree, path)

    async def _run(self) -> None:
        spec, context = self._spec, self._context
        await asyncio.to_thread(self._make_folders)
        self._packages = await context.builds.prepare(context.packages)
        visible = () if context.builds.walled else None
        places = await asyncio.to_thread(self._places)
        self._env = variables(spec, places, for_build(os.environ, visible))
        self._write(notes(spec))
        compiler = await asyncio.to_thread(_COMPILER.read_text)
        for step in steps(spec, places, compiler):
            await self._step(step)

    def _places(self) -> BuildPlaces:
        spec, sources = self._spec, self._spec.bento / "src"
        return BuildPlaces(
            root=self.found.root,
            interpreter=self.found.interpreter,
            uv=Path(self._context.uv),
            packages=self._packages,
            bento=spec.bento,
            sources=sources if sources.is_dir() else spec.requirements.parent,
            copy=self._own / BENTO,
            work=self._own,
            home=self._own / HOME if self._context.builds.walled else None,
            secrets_home=self._own / SECRETS_HOME,
        )

    def _make_folders(self) -> None:
        for name in ("", HOME, "tmp", *([SECRETS_HOME] if self._spec.secrets.files else [])):
            (self._own / name).mkdir(mode=0o755)
        configuration = _configuration(os.environ)
        if self._context.builds.walled and configuration.is_file():
            copy = self._own / HOME / ".config" / _CONFIGURATION
            copy.parent.mkdir(parents=True)
            shutil.copyfile(configuration, copy)
        if self._spec.post_commands:
            copy_bento(self._spec.bento, self._own / BENTO, linked=())

    async def _step(self, step: Step) -> None:
        self._check_room()
        self._write(step.header)
        start = self._log_bytes()
        first, given = await self._placing()
        command = BuildCommand(
            [*first, *step.command],
            self._env,
            Path(step.cwd),
            self._log.written_to,
            own=self._own,
            reads=self._reads(),
            writes=[self._packages],
            stdin_json=given,
        )
        program = await self._context.builds.start(command)
        try:
            status = await self._ended(program)
        except BaseException:  # also when interrupted: nothing of it is left, and raised again
            await until_done(program.end())
            raise
        finally:
            self._log.drain()
        if program.used_too_much:
            raise EnvironmentFailed(
                f"The step {step.name!r} of building the environment used more than the "
                f"{self._context.builds.memory_bytes >> 20} MiB of memory that builds may "
                "(build_memory_bytes); have it use less, or raise the limit."
            )
        match after(step, status, self._output(start), self._spec.python_version):
            case Step() as again:
                await self._step(again)
            case StepFailure() as failure:
                raise _failed(failure)

    async def _placing(self) -> tuple[list[str], Any]:
        """What stands before a step's program, and what that reads: files of secrets are in memory,
        which each step has its own of."""
        if not (files := self._spec.secrets.files):
            return [], None
        program = await asyncio.to_thread(Path(secret_files.__file__).read_text)
        memory = memory_folder(self._own, walled=self._context.builds.walled)
        given = {"folder": str(memory), "of": str(self._own), "files": dict(files)}
        return [str(self.found.interpreter), "-I", "-S", "-c", program], given

    def _check_room(self) -> None:
        if refusal := self._context.room.refusal(0):
            raise NoSpace(refusal)

    def _reads(self) -> list[Path]:
        configuration = os.environ.get("UV_CONFIG_FILE")
        return [
            Path(self._context.uv),
            self.found.interpreter.parent.parent,
            self._spec.bento,
            *filter(Path.exists, certificates(os.environ)),
            *([Path(configuration)] if configuration else []),
        ]

    async def _ended(self, step: BuildStep) -> int | None:
        """The step's exit status. Raises NoSpace as soon as it uses the disk's reserve, and
        `EnvironmentFailed` when it prints without end."""
        ended = asyncio.ensure_future(step.wait())
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=LOOK_S)
                self._check_room()
                if self._log_bytes() > MOST_LOG_BYTES:
                    raise _failed(printed_too_much(MOST_LOG_BYTES))
            return ended.result()
        finally:
            ended.cancel()

    def _check(self) -> None:
        """Raises `EnvironmentFailed` unless the environment's python is a link to the chosen
        interpreter, because replicas are shown that one, whatever the build has done."""
        link = ""
        with suppress(OSError), foreign_folder.ForeignFolder.open(self._own) as own:
            link = own.link(f"{VENV}/bin/python")
        if link != str(self.found.interpreter):
            raise EnvironmentFailed(
                "The build has put another bin/python into its environment; leave the one there."
            )

    def _log_bytes(self) -> int:
        return self._folder.log.stat().st_size

    def _output(self, start: int) -> str:
        with self._folder.log.open("rb") as log:
            log.seek(max(start, self._log_bytes() - TAIL_BYTES))
            return log.read(TAIL_BYTES).decode(errors="replace")

    def _write(self, text: str) -> None:
        with self._folder.log.open("a", encoding="utf-8") as log:
            log.write(text)


def _failed(failure: StepFailure) -> EnvironmentFailed:
    return EnvironmentFailed(
        failure.sentence, retry=failure.retry, no_room=failure.no_room, log=tuple(failure.log)
    )


def _configuration(environ: Mapping[str, str]) -> Path:
    """The settings of `uv` of the platform's user, above all the package indexes."""
    home = Path(environ.get("HOME", "/"))
    return Path(environ.get("XDG_CONFIG_HOME", home / ".config")) / _CONFIGURATION
