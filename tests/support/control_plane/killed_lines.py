"""A process that is killed (SIGKILL) at a line of its work, then at a later one …"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any


@dataclass(frozen=True)
class KilledWork:
    """What a process does in a folder, and what there must be whenever it dies."""

    name: str
    sources: Collection[str]
    """The files whose lines count."""
    make: Callable[[Path], None]
    """Makes what there is before, in an empty folder."""
    work: Callable[[Path], None]
    check: Callable[[Path], None]
    """Whether nothing is lost, and the next try comes to its end. Raises AssertionError."""


def deaths(work: KilledWork, top: Path, most: int, step: int) -> tuple[int, int]:
    """How many lines it has, and how often it was killed: at lines before which the files have
    changed, as between others the death would be the same, at `most` of them; and, with a `step`,
    at each `step`-th line.

    Raises AssertionError where something was lost. The caller has no other threads, as it forks.
    """
    before, tried = top / "before", top / "tried"
    before.mkdir()
    work.make(before)
    shutil.copytree(before, tried)
    seen = _files_at_each_line(work, tried)
    changed = [line for line, files in enumerate(seen) if line == 0 or files != seen[line - 1]]
    lines = {*_spread(changed, most), *(range(0, len(seen), step) if step else ())}
    for line in sorted(lines):
        folder = top / str(line)
        shutil.copytree(before, folder)
        _die(work, folder, line)
        try:
            work.check(folder)
        except Exception as error:
            raise AssertionError(f"{work.name}, dead at its line {line}: {error!r}") from error
        shutil.rmtree(folder)
    return len(seen), len(lines)


def _spread(lines: Sequence[int], most: int) -> Sequence[int]:
    """So many of them, from the first to the last."""
    if len(lines) <= most:
        return lines
    return [lines[round(number * (len(lines) - 1) / (most - 1))] for number in range(most)]


def _files_at_each_line(work: KilledWork, folder: Path) -> list[object]:
    found: list[object] = []
    _at_each_line(work, lambda: found.append(_files(folder)))
    work.work(folder)
    sys.settrace(None)
    threading.settrace(None)
    return found


def _files(folder: Path) -> object:
    """What tells these files from those of another moment."""
    paths = (Path(top, name) for top, _, names in os.walk(folder) for name in names)
    return {
        str(path): (found.st_ino, found.st_size, found.st_mtime_ns)
        for path, found in ((path, path.stat()) for path in paths)
    }


def _die(work: KilledWork, folder: Path, line: int) -> None:
    """A process is killed before so many lines are done; it may have come to its end before."""
    child = os.fork()
    if child == 0:
        lines = itertools.count()

        def die_there() -> None:
            if next(lines) == line:
                os.kill(os.getpid(), signal.SIGKILL)

        _at_each_line(work, die_there)
        work.work(folder)
        os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status == signal.SIGKILL, f"it was not killed at its line {line}: {status}"


def _at_each_line(work: KilledWork, call: Callable[[], None]) -> None:
    """Called before each line of its own from now on, in whichever thread."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in work.sources:
            return None
        if event == "line":
            call()
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
