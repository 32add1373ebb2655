"""The variables that /proc shows of a process, as `ps` and libraries read them: those with which a
program was started. A fork has those of its template. Python >= 3.9, standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

_START, _END = 47, 48
"""Where `env_start` and `env_end` are among what follows the name in /proc/PID/stat (proc(5))."""


def show_variables(env: Mapping[str, str], first: str) -> None:
    """Has /proc show these variables of this process and of none other: that one first, and as many
    more as there is room for. Nothing is changed where the kernel refuses."""
    with suppress(OSError):
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        start, room = int(fields[_START]), int(fields[_END]) - int(fields[_START])
        block = b""
        for name in sorted(env, key=lambda name: name != first):
            entry = os.fsencode(f"{name}={env[name]}") + b"\0"
            if len(block) + len(entry) <= room:
                block += entry
        if room > 0:
            with open("/proc/self/mem", "r+b", buffering=0) as memory:
                memory.seek(start)
                memory.write(block.ljust(room, b"\0"))
