"""`bentoml code` in a terminal, as a user has it open beside an editor."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import BIN
from tests.support.patience import PATIENCE_S, until


class CodeClient:
    """The running command, with what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process, terminal: int) -> None:
        self.process = process
        self.output = ""
        self._terminal = terminal
        self._news = asyncio.Event()

    @property
    def ended(self) -> bool:
        return self.process.returncode is not None

    async def press(self, key: str) -> None:
        """Once it reads single keys."""
        await until(lambda: not termios.tcgetattr(self._terminal)[3] & termios.ICANON)
        self.type(key)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    async def printed(self, text: str, after: int = 0) -> int:
        """Wait until it has printed this beyond its first characters; where that ends."""
        async with asyncio.timeout(PATIENCE_S):
            while (at := self.output.find(text, after)) < 0:
                assert not self.ended, self.output
                self._news.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 1.0)
        return at + len(text)

    async def begin(self, name: str) -> None:
        """Answer the menu's questions: a new code space of this name, until it watches."""
        await self.printed("Create a new codespace")
        await self.press("\r")
        await self.printed("Enter a name")
        self.type(f"{name}\r")
        await self.printed("Endpoint:")

    def read(self) -> None:
        with suppress(OSError):
            self.output += os.read(self._terminal, 1 << 16).decode(errors="replace")
        self._news.set()


@asynccontextmanager
async def coding(laptop: Laptop, folder: Path, line: str = "code .") -> AsyncIterator[CodeClient]:
    """`bentoml code …` in a folder until the block is left; then Ctrl-C."""
    terminal, its_end = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(str(BIN / "bentoml"), *shlex.split(line)),
        env={**laptop.environ, "TERM": "xterm", "LINES": "50"},
        cwd=folder,
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        start_new_session=True,
    )
    os.close(its_end)
    client = CodeClient(process, terminal)
    loop = asyncio.get_running_loop()
    loop.add_reader(terminal, client.read)
    try:
        yield client
    finally:
        if not client.ended:
            process.send_signal(signal.SIGINT)
            try:
                async with asyncio.timeout(15):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        loop.remove_reader(terminal)
        os.close(terminal)
