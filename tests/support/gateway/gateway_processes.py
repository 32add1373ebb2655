"""`hotplate gateway` as a process of its own, as a user starts it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.patience import until

_NUMBERS = itertools.count(1)


def _token(file: str) -> str:
    return Path(file).read_text().strip()


class GatewayProcess:
    """One gateway; it does not outlive its test."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, token: str = "") -> None:
        """`token` is its operators'."""
        self.process = process
        self._token = token
        self._log = log

    @classmethod
    @contextlib.asynccontextmanager
    async def start(
        cls, folder: Path, *flags: str, program: str = "hotplate.platform.cli"
    ) -> AsyncIterator[GatewayProcess]:
        """`folder` is where its log goes, under a name of its own; `program` is the module that is
        run."""
        log = folder / f"gateway-{next(_NUMBERS)}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", program, "gateway"), *flags, stderr=output
            )
        files = [flag.removeprefix("--token-file=") for flag in flags if "--token-file=" in flag]
        gateway = cls(process, log, *map(_token, files))
        try:
            yield gateway
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def ready(self) -> int:
        """Waits until it serves; its admin port."""
        await until(lambda: "ready: " in self.log or self.process.returncode is not None)
        assert self.process.returncode is None, self.log
        return int(self.log.partition("ready: ")[2].split()[0])

    async def admin(self, path: str) -> tuple[int, Any]:
        """Status and answer of the operator's listener: JSON where it is, else text."""
        url = f"http://127.0.0.1:{await self.ready()}{path}"
        shown = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        async with aiohttp.ClientSession() as session, session.get(url, headers=shown) as response:
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text) if is_json else text
