"""Becomes a replica's program, inside its control groups from the first instruction on.

`python -I -S enter.py OOM_SCORE GROUP… -- PROGRAM ARGUMENT…`, where each GROUP is a folder of the
cgroup file system. Run as a file, so that nothing but the interpreter is loaded before.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Exits with 127 and a sentence when the program cannot be started."""
    split = sys.argv.index("--")
    score, *groups = sys.argv[1:split]
    program = sys.argv[split + 1 :]
    _write("/proc/self/oom_score_adj", score)  # raising one's own is always allowed
    for group in groups:
        _write(f"{group}/cgroup.procs", "0")
    try:
        os.execve(program[0], program, _environment())
    except OSError as error:
        print(f"{program[0]} cannot be started in {os.getcwd()}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


def _environment() -> dict[bytes, bytes]:
    """What we were started with, without what the interpreter has added (LC_CTYPE)."""
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().split(b"\0")
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


main()
