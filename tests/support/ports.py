"""Ports below those that the kernel hands out, for what has to know its port before it listens.

Nobody else of this run gets one of them, be it that who has it does not listen yet, or not for a
while: each of the processes that test side by side has a share.
"""

from __future__ import annotations

import os
import random
import socket

SINGLE = range(10_000, 15_000)
RANGES = range(15_000, 32_000)

_next: dict[range, int] = {}


def free_port() -> int:
    """A port that nobody uses."""
    return _free(SINGLE, 1)


def free_range(count: int) -> int:
    """The first of so many ports in a row that nobody uses."""
    return _free(RANGES, count)


def _free(ports: range, count: int) -> int:
    """The next ones of our share: what was given out comes again after all the others."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = len(ports) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    mine = ports[worker * share :][:share]
    while True:
        # Another run beside this one begins elsewhere.
        first = _next.get(ports) or random.SystemRandom().choice(mine)
        if first + count > mine.stop:
            first = mine.start
        _next[ports] = first + count
        if all(map(_is_free, range(first, first + count))):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
