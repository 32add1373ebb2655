"""One attempt to build one environment: `uv`, and the commands of the bento's author, in isolation.

All of this is code that we do not trust: `setup.py` of any package, `post_commands`. It sees its
own folder, its organization's packages, `uv`, the interpreter and the bento.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotplate.cache.errors import NoSpace
from hotplate.deploy.builds import BuildCommand, BuildRunner, BuildStep
from hotplate.machine import foreign_folder
from hotplate.machine.background import until_done
from hotplate.machine.free_space import FreeSpace
from hotplate.serving.replica.environments.diagnosis import diagnose
from hotplate.serving.replica.environments.folder import VENV, EnvironmentFolder, ReadyEnvironment
from hotplate.serving.replica.environments.masked_log import masked_log
from hotplate.serving.replica.environments.spec import EnvironmentSpec
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.home import copy_bento
from hotplate.serving.replica.inherited import certificates, for_build
from hotplate.serving.replica.inside import secret_files
from hotplate.serving.replica.memory_folders import memory_folder, remove_memory

LOG_TAIL_LINES = 20
LOG_TAIL_BYTES = 256 << 10
"""How much of a step's output is searched for the reason of its failure."""
MOST_LOG_BYTES = 64 << 20
LOOK_S = 0.2
"""Seconds between checks of the disk while a step runs: a fast disk takes a few 100 MiB
meanwhile."""
BYTECODE = "bytecode"
"""The folder for bytecode beside what `uv` keeps of packages."""
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
        self._env = self._environment(for_build(os.environ, visible))
        for command in spec.skipped_commands:
            self._write(f"# not run, it is for a container's system: {command}\n")
        # Another node has it in another folder.
        venv = (context.uv, "venv", "--relocatable", "--python", str(self.found.interpreter))
        await self._step("uv venv", [*venv, str(self.found.root)], self._own)
        sources = spec.bento / "src"  # local wheels are named relative to it
        install = (context.uv, "pip", "install", "--python", str(self.found.python))
        await self._step(
            "uv pip install",
            [*install, "-r", str(spec.requirements)],
            sources if sources.is_dir() else spec.requirements.parent,
            refresh=("--refresh",),
        )
        for command in spec.post_commands:
            await self._step(command, ["/bin/sh", "-c", command], self._own / BENTO)
        await self._compile()
        if spec.post_commands:  # `uv` installs nothing that others may not read
            await self._step("chmod", ["chmod", "-R", "a+rX", str(self.found.root)], self._own)

    async def _compile(self) -> None:
        """Else every replica would compile torch at its start."""
        program = await asyncio.to_thread(_COMPILER.read_text)
        python = (str(self.found.interpreter), "-I", "-S", "-c", program)
        folders = (str(self.found.root), str(self._packages / BYTECODE))
        await self._step("compile", [*python, *folders], self._own, shown="compile all modules")

    def _make_folders(self) -> None:
        for name in ("", HOME, "tmp", *([SECRETS_HOME] if self._spec.secrets.files else [])):
            (self._own / name).mkdir(mode=0o755)
        configuration = _configuration(os.environ)
        if self._context.builds.walled and configuration.is_file():
            copy = self._own / HOME / ".config" / _CONFIGURATION
            copy.parent.mkdir(parents=True)
            shutil.copyfile(configuration, copy)
        if self._spec.post_commands:
            copy_bento(self._spec.bento, self._own / BENTO)

    def _environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """The build's variables. Without isolation it has the home and the temporary folder of the
        platform's user."""
        walled, secrets = self._context.builds.walled, self._spec.secrets
        programs = (str(self.found.python.parent), str(Path(self._context.uv).parent))
        return {
            **inherited,
            **self._spec.build_env,
            **{n: v for n, v in secrets.env.items() if n not in self._spec.build_env},
            **({"BENTOML_HOME": str(self._own / SECRETS_HOME)} if secrets.files else {}),
            "PATH": os.pathsep.join((*programs, inherited.get("PATH", os.defpath))),
            "VIRTUAL_ENV": str(self.found.root),
            **({"HOME": str(self._own / HOME), "TMPDIR": "/tmp"} if walled else {}),
            "UV_CACHE_DIR": str(self._packages),
            # A hard link would be the same file in the cache and in every other environment.
            "UV_LINK_MODE": "copy",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_PROGRESS": "1",
            "NO_COLOR": "1",
        }

    async def _step(
        self,
        name: str,
        argv: Sequence[str],
        cwd: Path,
        *,
        shown: str = "",
        refresh: Sequence[str] = (),
    ) -> None:
        """One command; the log has it as it is run, or as it is `shown`. With the flags `refresh`
        it is run again where an index may have by now what was missing."""
        self._check_room()
        self._write(f"# {shown}\n" if shown else f"$ {' '.join(argv)}\n")
        start = self._log_bytes()
        first, given = await self._placing()
        command = BuildCommand(
            [*first, "/bin/sh", "-c", 'umask 022; exec "$@"', "sh", *argv],  # replicas are others
            self._env,
            cwd,
            self._log.written_to,
            own=self._own,
            reads=self._reads(),
            writes=[self._packages],
            stdin_json=given,
        )
        step = await self._context.builds.start(command)
        try:
            status = await self._ended(step)
        except BaseException:  # also when interrupted: nothing of it is left, and raised again
            await until_done(step.end())
            raise
        finally:
            self._log.drain()
        if step.used_too_much:
            raise EnvironmentFailed(
                f"The step {name!r} of building the environment used more than the "
                f"{self._context.builds.memory_bytes >> 20} MiB of memory that builds may "
                "(build_memory_bytes); have it use less, or raise the limit."
            )
        if status != 0:
            output = self._output(start)
            diagnosis = diagnose(output, self._spec.python_version, name)
            if diagnosis.may_be_new and refresh:
                await self._step(name, [*argv, *refresh], cwd, shown=shown)
                return
            raise EnvironmentFailed(
                diagnosis.sentence,
                retry=diagnosis.retry,
                no_room=diagnosis.no_room,
                log=tuple(output.splitlines()[-LOG_TAIL_LINES:]),
            )

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
                    raise EnvironmentFailed(
                        f"Building the environment printed more than {MOST_LOG_BYTES >> 20} MiB; "
                        "have its commands print less."
                    )
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
            log.seek(max(start, self._log_bytes() - LOG_TAIL_BYTES))
            return log.read(LOG_TAIL_BYTES).decode(errors="replace")

    def _write(self, text: str) -> None:
        with self._folder.log.open("a", encoding="utf-8") as log:
            log.write(text)


def _configuration(environ: Mapping[str, str]) -> Path:
    """The settings of `uv` of the platform's user, above all the package indexes."""
    home = Path(environ.get("HOME", "/"))
    return Path(environ.get("XDG_CONFIG_HOME", home / ".config")) / _CONFIGURATION
