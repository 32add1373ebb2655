"""What a program within walls sees of this machine's files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VisibleFiles:
    """Absolute paths; those of `reads` and `writes` may be files or folders."""

    reads: tuple[str, ...] = ()
    """Shown to read, of what is hidden."""
    writes: tuple[str, ...] = ()
    """Shown to write too."""
    layers: tuple[tuple[str, str], ...] = ()
    """Folders shown to read, each with one of the program's own in which lies what it writes there:
    the first stays as it is for everybody else."""
    own: str = ""
    """The program's own folder, which it always writes; its `tmp` is the program's /tmp."""
