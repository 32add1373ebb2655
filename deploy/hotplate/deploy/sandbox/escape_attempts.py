"""Tries what walls keep a program from, and does no harm where it succeeds.

Run within walls by `inspection.py`, as a file: standard library only. On standard input there is a
JSON object with what lies outside (see `inspection.py`); to standard output goes one with an entry
per attempt: why it was refused, or null where it succeeded.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import socket
import stat
import sys
from collections.abc import Callable, Iterable
from typing import Any

NEW_MOUNTS, NEW_USERS = 0x20000, 0x10000000
"""From linux/sched.h."""
_PR_GET_NO_NEW_PRIVS = 39
_AT_FDCWD, _OPEN_TREE = -100, 428
_KEYCTL = 250 if os.uname().machine == "x86_64" else 219
"""From linux/prctl.h, linux/fcntl.h and asm/unistd.h."""
_LOOKS_MAX = 4096
"""Files of a tree that are tried; the first that can be written tells enough."""

Attempt = Callable[[], object]


class Refused(Exception):
    """The wall held, by not even showing what was looked for."""


def main() -> None:
    outside = json.load(sys.stdin)
    json.dump({name: outcome(attempt) for name, attempt in attempts(outside).items()}, sys.stdout)


def attempts(outside: dict[str, Any]) -> dict[str, Attempt]:
    """By name; each raises OSError, ValueError or Refused where it is refused."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> int:
        result: int = getattr(libc, name)(*arguments)
        if result == -1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    def number(value: int) -> ctypes.c_long:
        return ctypes.c_long(value)

    victim = outside["victim"]
    return {
        "platform's file": lambda: _read(outside["data canary"]),
        "other replica's file": lambda: _read(outside["replica canary"]),
        "other replica's socket": lambda: _connect(outside["socket"]),
        "machine's /tmp": lambda: _read(outside["tmp canary"]),
        "machine's /dev/shm": lambda: _read(outside["shm canary"]),
        "home": lambda: _seen(outside["in home"]),
        "write /etc": lambda: _create("/etc"),
        "write /usr": lambda: _create("/usr"),
        "control groups": lambda: _opened_to_write(_files_below("/sys/fs/cgroup")),
        "kernel's settings": lambda: _opened_to_write(["/proc/sys/kernel/core_pattern"]),
        "see processes": lambda: _process_of(victim),
        "signal a process": lambda: os.kill(_process_of(victim), 0),
        "limit a process": lambda: resource.prlimit(_process_of(victim), resource.RLIMIT_NOFILE),
        "environment of a process": lambda: _read(f"/proc/{_process_of(victim)}/environ"),
        "shared memory": lambda: call("shmat", int(outside["segment"]), None, 0o10000),
        "devices": _devices,
        "lift a limit": lambda: _lift(outside["limits"]),
        "new privileges": lambda: _expect(call("prctl", _PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0),
        "mount": lambda: _mount(call),
        "see mounts anew": lambda: call("unshare", number(NEW_USERS | NEW_MOUNTS)),
        "trees of mounts": lambda: call("syscall", *map(number, (_OPEN_TREE, _AT_FDCWD)), b"/", 1),
        "keys": lambda: call("syscall", *map(number, (_KEYCTL, 0, -3, 1))),
        "packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM),
        "kernel's cryptography": lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET),
        "filter": lambda: _expect("Seccomp:\t2" not in _read("/proc/self/status")),
        "file": lambda: _leave_file(outside["left"]),
    }


def outcome(attempt: Attempt) -> str | None:
    """Why it was refused; None where it was not. In a process of its own, which is another one
    after some of them."""
    answer, written = os.pipe()
    if (child := os.fork()) == 0:
        os.write(written, _refusal(attempt).encode())
        os._exit(0)
    os.close(written)
    os.waitpid(child, 0)
    with open(answer) as file:
        return file.read() or None


def _refusal(attempt: Attempt) -> str:
    try:
        attempt()
    except OSError as error:
        return error.strerror or str(error)
    except (Refused, ValueError) as error:
        return str(error)
    return ""


def _read(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()


def _seen(path: str) -> None:
    if not path:
        raise Refused("there is nothing to look for")
    os.lstat(path)


def _connect(path: str) -> None:
    folder = os.open(os.path.dirname(path), os.O_PATH)  # a path of any length
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")


def _mount(call: Callable[..., int]) -> None:
    os.mkdir("mounted")
    try:
        folder = os.path.abspath("mounted").encode()
        call("mount", b"tmpfs", folder, b"tmpfs", ctypes.c_ulong(0), None)
        call("umount2", folder, 0)
    finally:
        os.rmdir("mounted")


def _create(folder: str) -> None:
    path = f"{folder}/.hotplate-doctor-{os.getpid()}"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.unlink(path)


def _files_below(folder: str) -> Iterable[str]:
    for above, _, names in os.walk(folder):
        yield from (f"{above}/{name}" for name in names)


def _opened_to_write(paths: Iterable[str]) -> None:
    """Opens the first that can be, and writes nothing. Raises OSError."""
    last = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for _, path in zip(range(_LOOKS_MAX), paths, strict=False):
        try:
            os.close(os.open(path, os.O_WRONLY))
        except OSError as error:
            last = error
        else:
            return
    raise last


def _process_of(mark: str) -> int:
    """The process outside that has `mark` among its arguments: its number here, if it has one."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                words = _read(f"/proc/{name}/cmdline")
            except OSError:
                continue
            if mark in words:
                return int(name)
    raise Refused("it is not there")


def _devices() -> None:
    """One through which more than this program's own is reached."""
    for above, _, names in os.walk("/dev"):
        for name in names:
            mode = os.stat(f"{above}/{name}", follow_symlinks=False).st_mode
            if stat.S_ISBLK(mode) or name in ("mem", "kmsg", "port", "fuse", "kvm", "loop-control"):
                os.close(os.open(f"{above}/{name}", os.O_RDONLY | os.O_NONBLOCK))
                return
    raise Refused("there are none")


def _lift(limits: dict[str, int]) -> None:
    """Have more than a limit that walls set, or make one larger. Raises OSError or ValueError."""
    for name, most in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        if hard == resource.RLIM_INFINITY or hard > most:
            return
    for name in limits:
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (hard, hard + 1))


def _expect(open_here: bool) -> None:
    if not open_here:
        raise Refused("it is shut")


def _leave_file(path: str) -> None:
    """For whoever is outside to see whose it is."""
    with open(path, "w"):
        pass


if __name__ == "__main__":
    main()
