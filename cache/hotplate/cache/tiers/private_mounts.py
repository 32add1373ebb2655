"""Mounts that no path leads to: folders that are reached by their descriptors only.

They are made in a mount namespace that ends at once, while the descriptors live on. A user without
the right to mount makes them in a user namespace, in a short program: this file, run as a script.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MS_NOATIME, _MS_NODIRATIME, _MS_RELATIME = 1024, 2048, 1 << 21
"""From linux/sched.h and linux/mount.h."""
_ST_NOATIME, _ST_NODIRATIME, _ST_RELATIME = 1024, 2048, 4096
"""From sys/statvfs.h; Python's os lacks them."""

_BARE = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
_LIMIT_S = 20.0

_libc = ctypes.CDLL(None, use_errno=True)


def memory(folder: Path) -> tuple[int, int]:
    """A tmpfs of huge pages: a descriptor of it, and one through which nothing in it can change.

    `folder` may be any that exists; it stays as it is. The caller closes both. Raises OSError.
    """
    writable, readable = _made("memory", folder)
    return writable, readable


def read_only(folder: Path) -> int:
    """A descriptor of the folder through which nothing in it can change: not by a descriptor of a
    file that was opened through it, nor by opening that again, whoever owns the file.

    The caller closes it. Raises OSError.
    """
    (readable,) = _made("read-only", folder)
    return readable


def _made(kind: str, folder: Path) -> list[int]:
    try:
        return _made_here(kind, folder)
    except PermissionError:
        return _made_by_child(kind, folder)


def apart(work: Callable[[], None]) -> None:
    """Do the work in a mount namespace of its own, which no other hears of and which ends with it.

    Raises OSError.
    """
    refusals: list[OSError] = []

    def enter() -> None:
        try:
            _check(_libc.unshare(_CLONE_NEWNS))
            _mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
            work()
        except OSError as refusal:
            refusals.append(refusal)

    # Only this thread enters the new mount namespace.
    entering = threading.Thread(target=enter)
    entering.start()
    entering.join()
    if refusals:
        raise refusals[0]


def bind(source: Path, target: Path) -> None:
    """Show a folder at another one too, where nobody can write, and where it holds no devices and
    gives no other rights. Raises OSError."""
    flags = _MS_NOSUID | _MS_NODEV | _MS_RDONLY
    _mount(os.fsencode(source), os.fsencode(target), None, _MS_BIND, None)
    _mount(None, os.fsencode(target), None, _MS_BIND | _MS_REMOUNT | flags, None)


def _made_here(kind: str, folder: Path) -> list[int]:
    opened: list[int] = []
    try:
        apart(lambda: _KINDS[kind](os.fsencode(folder), opened))
    except OSError:
        _close(opened)
        raise
    return opened


def _made_by_child(kind: str, folder: Path) -> list[int]:
    """For a process of several threads, which cannot enter a user namespace."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [sys.executable, "-I", "-S", __file__, kind, os.fspath(folder), str(theirs.fileno())]
        try:
            done = subprocess.run(
                argv, pass_fds=[theirs.fileno()], capture_output=True, timeout=_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as exc:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from exc
        theirs.close()
        data, opened, _, _ = socket.recv_fds(ours, 16, 2)
    if done.returncode or not data:
        _close(opened)
        number = int(done.stdout) if done.stdout.isdigit() else errno.EPERM
        raise OSError(number, os.strerror(number))
    for fd in opened:
        os.set_inheritable(fd, False)
    return opened


def _memory(folder: bytes, opened: list[int]) -> None:
    # Whole huge pages only: a small file would take 2 MiB.
    _mount(b"arena", folder, b"tmpfs", _BARE, b"huge=within_size,size=100%,mode=700")
    opened.append(_open(folder))
    _mount(folder, folder, None, _MS_BIND, None)
    _mount(None, folder, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _BARE, None)
    opened.append(_open(folder))


def _read_only(folder: bytes, opened: list[int]) -> None:
    _mount(folder, folder, None, _MS_BIND, None)
    # In a user namespace, flags that were set before cannot be cleared.
    had = os.statvfs(folder).f_flag
    times = {
        _ST_NOATIME: _MS_NOATIME, _ST_NODIRATIME: _MS_NODIRATIME, _ST_RELATIME: _MS_RELATIME,
    }  # fmt: skip
    flags = _BARE | sum(flag for bit, flag in times.items() if had & bit)
    _mount(None, folder, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | flags, None)
    opened.append(_open(folder))


_KINDS: dict[str, Callable[[bytes, list[int]], None]] = {
    "memory": _memory,
    "read-only": _read_only,
}


def _open(folder: bytes) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _close(opened: list[int]) -> None:
    for fd in opened:
        with contextlib.suppress(OSError):
            os.close(fd)


def _mount(
    source: bytes | None, target: bytes, kind: bytes | None, flags: int, options: bytes | None
) -> None:
    _check(_libc.mount(source, target, kind, ctypes.c_ulong(flags), options))


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _map_own_ids() -> None:
    """Maps this user and group, since the user that mounts a tmpfs must exist in the namespace."""
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    _mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")


if __name__ == "__main__":
    try:
        _map_own_ids()
        descriptors: list[int] = []
        _KINDS[sys.argv[1]](os.fsencode(sys.argv[2]), descriptors)
        with socket.socket(fileno=int(sys.argv[3])) as end:
            socket.send_fds(end, [b"made"], descriptors)
    except OSError as error:
        sys.exit(print(error.errno, end="") or 1)
