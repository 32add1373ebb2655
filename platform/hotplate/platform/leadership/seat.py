"""The place of the one control plane that acts on a machine's replicas.

It is a lock of the kernel's, which a process has until it has ended with all of its threads, or has
begun anew. So whatever a former one was about to do when it was stopped, or hung, it has done
before the next one begins, or it never does it: no command needs an epoch.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import struct
from contextlib import suppress
from pathlib import Path

log = logging.getLogger("hotplate.leadership")

LOOK_S = 0.05
HANGS_S = 3.0
"""One whose term is over begins anew when it goes on. One that still has the seat after so long
hangs, and is killed."""

_FLOCK = "@hhqqi4x"
"""`struct flock` of a 64-bit Linux: type, whence, start, length, process."""


class Seat:
    """`take` it with a term, and `leave` it before that is given up."""

    def __init__(self, file: Path) -> None:
        """The file is made where there is none. Nothing else may open it: a process lets go of the
        lock with the first descriptor of the file that it closes."""
        self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    async def take(self, hangs_s: float = HANGS_S) -> None:
        """Returns when no other process has it. One that has it goes on, if it was stopped, and
        after `hangs_s` it is killed."""
        now = asyncio.get_running_loop().time
        began, woken = now(), 0
        while not self._locked():
            holder = self._holder()
            if holder and holder != woken:
                log.warning("process %d, which acted before, is continued so that it ends", holder)
                self._tell(holder, signal.SIGCONT)
                woken, began = holder, now()
            elif holder and now() - began >= hangs_s:
                log.warning("process %d still acts after %g s, and is killed", holder, hangs_s)
                self._tell(holder, signal.SIGKILL)
                began = now()
            await asyncio.sleep(LOOK_S)

    def leave(self) -> None:
        """Nothing that only the one that acts may do comes after this."""
        os.close(self._descriptor)

    def _locked(self) -> bool:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _holder(self) -> int:
        """The process that has it; 0 = none has, or it cannot be seen from here."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = struct.unpack(_FLOCK, fcntl.fcntl(self._descriptor, fcntl.F_GETLK, asked))
        return max(pid, 0) if kind != fcntl.F_UNLCK else 0

    def _tell(self, pid: int, number: signal.Signals) -> None:
        """Signals the process if it is the one that has the seat, whatever else had its number."""
        with suppress(OSError):  # it has ended
            process = os.pidfd_open(pid)
            try:
                if self._holder() == pid:
                    signal.pidfd_send_signal(process, number)
            finally:
                os.close(process)
