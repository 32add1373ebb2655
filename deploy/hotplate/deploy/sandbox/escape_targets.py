"""What escape attempts aim at: files, sockets, memory and a process that a replica must not reach.

They are laid out for one check of the isolation and removed afterwards.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from hotplate.deploy.sandbox.cgroups import PIDS_MAX

PROGRAM = Path(__file__).with_name("escape_attempts.py")
"""The program that tries to escape."""
LEFTOVER = "left"
"""A file that the program leaves in its own folder."""
_HARD_LIMITS = {"RLIMIT_NPROC": PIDS_MAX, "RLIMIT_NOFILE": 65_536}
"""The highest limits that a replica may have."""
_IPC_CREAT, _IPC_RMID = 0o1000, 0
"""From linux/ipc.h."""


@contextmanager
def escape_targets(hidden: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folder of the program that tries to escape, and the targets outside, by name.

    They are made within the folder `hidden`, in the machine's shared folders and as a process, and
    are removed at the end.
    """
    mark = secrets.token_hex(8)
    with ExitStack() as stack:
        base = Path(stack.enter_context(_folder(hidden)))
        own, other = base / "own", base / "other"
        for folder in (own, own / "tmp", other):
            folder.mkdir()
        shutil.copy(PROGRAM, own)
        outside: dict[str, Any] = {"victim": mark, "left": str(own / LEFTOVER)}
        outside["in home"] = _unneeded_in(
            Path(os.path.expanduser("~")), [hidden, Path(sys.prefix), Path(sys.base_prefix)]
        )
        outside["limits"] = _HARD_LIMITS
        for name, folder in (
            ("data canary", base),
            ("replica canary", other),
            ("tmp canary", Path("/tmp")),
            ("shm canary", Path("/dev/shm")),
        ):
            outside[name] = stack.enter_context(_canary(folder, mark))
        outside["socket"] = stack.enter_context(_listener(other))
        outside["segment"] = stack.enter_context(_segment())
        stack.enter_context(_victim(mark))
        yield own, outside


@contextmanager
def _folder(hidden: Path) -> Iterator[str]:
    """A folder below `hidden` that is removed at the end."""
    path = tempfile.mkdtemp(prefix="doctor-", dir=hidden)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _canary(folder: Path, mark: str) -> Iterator[str]:
    path = folder / f"hotplate-doctor-{mark}"
    try:
        path.write_text(mark)
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _listener(folder: Path) -> Iterator[str]:
    """A Unix socket on which something listens."""
    descriptor = os.open(folder, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{descriptor}/socket")  # a path of any length
            listener.listen()
            yield str(folder / "socket")
    finally:
        os.close(descriptor)


@contextmanager
def _segment() -> Iterator[int]:
    """Shared memory that every process that sees it may attach to."""
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0, ctypes.c_size_t(4096), _IPC_CREAT | 0o666)
    try:
        yield segment
    finally:
        libc.shmctl(segment, _IPC_RMID, None)


@contextmanager
def _victim(mark: str) -> Iterator[None]:
    """A process of this user, with the mark among its arguments."""
    argv = ["/bin/sh", "-c", "read _", mark]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.kill()


def _unneeded_in(home: Path, needed: Sequence[Path]) -> str:
    """The path of something in a home that no replica needs; "" where there is none."""
    with suppress(OSError):
        for path in sorted(home.iterdir()):
            if not any(path == each or path in each.parents for each in needed):
                return str(path)
    return ""
