"""Where environments are built: what is asked of whoever runs the programs of a build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class BuildCommand:
    """How one program of a build is to be run."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """Exactly what it has."""
    cwd: Path
    log: Path
    """Its output is appended there."""
    own: Path
    """Its build's alone, to read and write; `own / "tmp"` is its /tmp."""
    stdin_json: Any = None
    """What it reads from its standard input; None = nothing."""
    reads: Sequence[Path] = ()
    writes: Sequence[Path] = ()


class BuildStep(Protocol):
    """One program of a build with all that it has started."""

    async def wait(self) -> int | None:
        """Its exit status, negative for a signal, once nothing of it runs."""

    async def end(self) -> None:
        """Kill it; returns once nothing of it runs."""

    @property
    def used_too_much(self) -> bool:
        """Whether it was killed for the memory that it used."""


class BuildRunner(Protocol):
    """Where builds of environments run, shut in."""

    @property
    def walled(self) -> bool:
        """Whether a build sees nothing of what it is not shown."""

    @property
    def memory_bytes(self) -> int:
        """What all that run at a time may use together."""

    async def prepare(self, folder: Path) -> Path:
        """Make a folder that builds write in, and everything below it; returns the one to use,
        which is there then. Raises OSError."""

    async def take(self, folder: Path) -> None:
        """Make a folder that builds have written, with all that is in it, the platform's own.
        Raises OSError."""

    async def start(self, command: BuildCommand) -> BuildStep:
        """Raises OSError where it cannot be started."""
