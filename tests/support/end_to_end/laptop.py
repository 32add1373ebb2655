"""The stock bentoml client, unmodified, on a laptop of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.forks import run
from tests.support.end_to_end.platform_process import BIN, exit_of


@dataclass(frozen=True)
class Laptop:
    """One `BENTOML_HOME`."""

    home: Path
    typed: bool = False
    """Each command starts the `bentoml` from the path, as a user does, and imports it again."""

    @classmethod
    async def at(cls, home: Path, platform: AnyPlatform, *, typed: bool = False) -> Self:
        """One that is logged in to the platform, in a folder that is made if there is none."""
        laptop = cls(home, typed)
        laptop.home.mkdir(exist_ok=True)
        await laptop.login(platform)
        return laptop

    async def login(self, platform: AnyPlatform) -> str:
        where = ("--endpoint", platform.url, "--api-token", platform.token)
        return await self.bentoml("cloud", "login", *where)

    async def bentoml(
        self, *arguments: str, folder: Path | None = None, fails: bool = False
    ) -> str:
        """What the command prints. Fails unless it exits as expected."""
        status, output = await self._run(["bentoml", *arguments], folder=folder)
        assert (status != 0) == fails, output
        return output

    async def types(self, line: str, *, folder: Path | None = None, fails: bool = False) -> str:
        """The same of `bentoml LINE` as a user types it; what it prints has no line breaks, which
        stand where the terminal ends."""
        printed = await self.bentoml(*shlex.split(line), folder=folder, fails=fails)
        return " ".join(printed.split())

    async def begin(self, *arguments: str) -> asyncio.subprocess.Process:
        """The command while it runs; what it prints is not kept."""
        return await asyncio.create_subprocess_exec(
            *(str(BIN / "bentoml"), *arguments),
            env=self.environ,
            cwd=self.home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def python(self, code: str, *arguments: str) -> str:
        """Run a program that uses the bentoml library; what it prints."""
        status, output = await self._run(["-c", *arguments], code)
        assert status == 0, output
        return output

    async def build(self, name: str, source: str, version: str = "v1") -> str:
        """Build a bento whose `service.py` is `source`; its tag."""
        folder = self.project(f"{name}-{version}", source)
        await self.bentoml("build", "--name", name, "--version", version, folder=folder)
        return f"{name}:{version}"

    async def deploy(
        self, name: str, bento: str, folder: Path | None = None, **services: Any
    ) -> None:
        """`bentoml deploy -f`; `bento` is a tag, or "." for the project in `folder`.

        The settings of each service are `Kitchen={"scaling": {…}}`.
        """
        file = self.home / f"{name}.yaml"
        file.write_text(json.dumps({"name": name, "bento": bento, "services": services}))
        await self.bentoml("deploy", "-f", str(file), folder=folder)

    def project(self, name: str, source: str) -> Path:
        """A folder with a service, as a user has it before building."""
        folder = self.home / "projects" / name
        folder.mkdir(parents=True)
        (folder / "service.py").write_text(source)
        return folder

    async def _run(
        self, argv: list[str], program: str = "", folder: Path | None = None
    ) -> tuple[int, str]:
        """The exit status and the output of a program, or of the client."""
        if self.typed:
            command = [sys.executable, "-c", program] if program else [str(BIN / "bentoml")]
            return await exit_of([*command, *argv[1:]], self.environ, folder or self.home)
        return await run(argv, self.environ, folder or self.home, program)

    @property
    def environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("BENTO", "PYTHON"))}
        return kept | {
            "BENTOML_HOME": str(self.home),
            "BENTOML_DO_NOT_TRACK": "True",
            "COLUMNS": "500",
        }


@asynccontextmanager
async def deployed(
    platform: AnyPlatform, laptop: Laptop, bento: str, name: str, **services: Any
) -> AsyncIterator[str]:
    """The URL of a deployment made with `bentoml deploy -f`, deleted at the end."""
    try:
        await laptop.deploy(name, bento, **services)
        yield await platform.url_of(name)
    finally:
        await asyncio.shield(platform.delete(name))
