"""Buries the children of a process that has no other use for them: of an earlier self, whose
program it no longer runs."""

from __future__ import annotations

import asyncio
import os
import signal


class ChildReaper:
    """Reaps every child that ends, until `end`. Nothing else in the process may wait for one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGCHLD, _reap_all)
        _reap_all()

    def end(self) -> None:
        self._loop.remove_signal_handler(signal.SIGCHLD)


def _reap_all() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
