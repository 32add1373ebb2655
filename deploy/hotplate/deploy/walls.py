"""What of this machine's files replicas do not see: the platform's own and each other's.

A replica runs as the platform's user, so nothing but its own user and mount namespaces (Linux
5.12, and that this user may make some) keep it from them. `enter.py` puts them up.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hotplate.deploy.enclosure import Enclosure, entrance
from hotplate.deploy.enter import HIDE, READ, SHOWN, WRITE
from hotplate.deploy.processes import Process, until_reaped
from hotplate.deploy.view import View

_LIMIT_S = 10.0
"""For a try that takes milliseconds, on a machine that is busy."""
_ANSWER_BYTES = 1 << 12


class Walls:
    """Around each replica of one engine."""

    def __init__(self, hidden: Sequence[Path] = ()) -> None:
        """`hidden` are folders, by their real paths, of which a replica sees what it needs only.

        Tries once whether this user may do that here.
        """
        self._hidden = [path for path in hidden if path.is_absolute() and path != Path("/")]
        self.refusal = "nothing is to be hidden"
        """Why there are none; empty when there are."""
        if self._hidden:
            self.refusal = self._try()

    def door(self) -> Door:
        """One to pass to `around`; where there are no walls, it leads nowhere."""
        return Door() if not self.refusal else Door(wanted=False)

    async def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | Path,
        log_path: str | Path,
        *,
        view: View,
        enclosure: Enclosure,
        stdin_json: Any = None,
        pass_fds: Collection[int] = (),
        door: Door | None = None,
    ) -> Process:
        """Start `argv` in the enclosure and within walls, as `Process.spawn` does.

        At the door it may be shown more later. Raises `SpawnFailed`.
        """
        reads = [*view.reads, *(folder for folder, _ in view.layers)]
        writes = [*view.writes, view.own] if view.own else view.writes
        return Process.spawn(
            [*enclosure.entrance, *self.around(reads, writes, door), *argv],
            env,
            cwd,
            log_path,
            stdin_json,
            [*pass_fds, *(door.descriptors if door is not None else ())],
            enclosure,
        )

    def around(
        self, reads: Iterable[str], writes: Iterable[str], door: Door | None = None
    ) -> list[str]:
        """What to put between an enclosure's entrance and a program.

        The program may read and write what is below these paths; what is not hidden is as ever.
        At the door it may be shown more later.
        """
        if self.refusal:
            return ["", ""]
        descriptors = door.descriptors if door is not None else []
        return [self._lines(_shown(reads, writes)), "".join(map(str, descriptors))]

    def _lines(self, more: str) -> str:
        there = {path for path in self._hidden if path.is_dir()}
        outer = [path for path in there if not there.intersection(path.parents)]
        return "\n".join([*(f"{HIDE} {path}" for path in outer), more])

    def _try(self) -> str:
        """Why they cannot be put up; empty when they can."""
        program = [sys.executable, "-I", "-S", "-c", ""]
        argv = [*entrance((), 0), self._lines(""), "", *program]
        try:
            tried = subprocess.run(argv, capture_output=True, timeout=_LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        said = tried.stderr.decode(errors="replace").strip().splitlines()
        return said[-1] if tried.returncode and said else ""


class Door:
    """In the walls around one process: shows it more, once. Within the block, its other side too
    is open here, for the process to inherit."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._sides = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) if wanted else ()

    @property
    def descriptors(self) -> list[int]:
        """What the process has to inherit."""
        return [side.fileno() for side in self._sides[1:]]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for side in self._sides[1:]:
            side.close()

    async def show(self, reads: Iterable[str], writes: Iterable[str]) -> None:
        """Returns when nobody is at the door any more. Raises OSError."""
        for side in self._sides[:1]:
            side.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(side, _shown(reads, writes).encode())
            answer = await loop.sock_recv(side, _ANSWER_BYTES)
            if not answer.startswith(SHOWN):
                raise OSError(os.fsdecode(answer) or "nobody is at its door")
            side.close()
            await until_reaped(int(answer.removeprefix(SHOWN)))

    def close(self) -> None:
        for side in self._sides:
            side.close()


def _shown(reads: Iterable[str], writes: Iterable[str]) -> str:
    lines = [f"{READ} {path}" for path in reads] + [f"{WRITE} {path}" for path in writes]
    return "\n".join(lines)
