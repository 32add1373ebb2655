"""The terminal of `hotplate up`: it shows what happens, in sentences."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from hotplate.deploy.process.printable import printable
from hotplate.platform.log_format import for_people

FOLLOW_S = 0.5
"""Between two looks at a log."""
ONCE = "  (signs you in, once)"
MOST_BYTES = 1 << 20
"""The most that one look reads."""


class Terminal:
    """Prints to one console. Nothing here fails where that goes to a disk that is full."""

    def __init__(self, console: Console, *, verbose: bool) -> None:
        """`verbose`: every line that a role logs is printed, and not only those for people."""
        self._console = console
        self._verbose = verbose

    def say(self, text: str, style: str = "") -> None:
        """Print one line of plain text."""
        with suppress(OSError):
            self._console.print(escape(text), style=style or None, soft_wrap=True)

    def greet(self, url: str, dashboard: str, token_file: Path, data: Path) -> None:
        """Say that the platform is ready, and what to do with it; `dashboard` is an address.

        The token itself is not printed: not into journals, nor into a history of commands.
        """
        token = f'"$(cat {shlex.quote(str(token_file))})"'
        print(f"\nHotplate is ready at {url}\n")
        print(f"  BENTO_CLOUD_API_KEY={token} bentoml cloud login --endpoint {url}\n")
        print(f"Dashboard: {dashboard}{ONCE if '?link=' in dashboard else ''}\n")
        print("Then, in the folder of a service:  bentoml deploy .")
        print(f"Data: {data}.  Ctrl-C stops everything.\n", flush=True)

    async def follow(self, role: str, log: Path, looked: Callable[[], None]) -> None:
        """Print what a role logs from now on; `looked` is called after each look."""
        position = _size_of(log)
        while True:
            await asyncio.sleep(FOLLOW_S)
            looked()
            if _size_of(log) <= position:
                position = min(position, _size_of(log))
                continue
            lines, read_bytes = _whole_lines(log, position)
            position += read_bytes
            for line in lines:
                self._show(role, printable(line))

    def _show(self, role: str, line: str) -> None:
        if self._verbose:
            with suppress(OSError):
                self._console.print(f"[dim]{role:13}[/] {escape(line)}", soft_wrap=True)
        elif shown := for_people(line):
            self.say(shown)


def _size_of(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _whole_lines(log: Path, position: int) -> tuple[list[str], int]:
    """The whole lines from there on, and how many bytes they are."""
    with log.open("rb") as file:
        file.seek(position)
        fresh = file.read(MOST_BYTES)
    whole = fresh[: fresh.rfind(b"\n") + 1]
    return whole.decode(errors="replace").splitlines(), len(whole)
