"""`as_user.py UID FOLDER… -- PROGRAM…`: becomes the program, as an ordinary user of this machine.

`in:UID` makes it root of a user namespace of its own, in which UID and those after it are all ids.

Root's interpreter and checkout may lie below folders that nobody else may enter. In a mount
namespace of its own the program finds each FOLDER at its place, and nothing else of what is closed.
Run by root.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_NEWNS, _NEWUSER = 0x20000, 0x10000000
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000
"""From linux/sched.h and sys/mount.h."""


def main() -> None:
    split = sys.argv.index("--")
    user, *folders = sys.argv[1:split]
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_NEWNS))
    _check(libc.mount(b"none", b"/", None, ctypes.c_ulong(_REC | _PRIVATE), None))
    closed: dict[Path, list[tuple[str, int]]] = {}
    for folder in folders:
        if (top := _closed_above(Path(folder))) is not None:
            closed.setdefault(top, []).append((folder, os.open(folder, os.O_PATH)))
    for top, shown in closed.items():
        _check(libc.mount(b"tmpfs", bytes(top), b"tmpfs", ctypes.c_ulong(0), b"mode=755"))
        for folder, descriptor in shown:
            os.makedirs(folder, exist_ok=True)
            source = f"/proc/self/fd/{descriptor}".encode()
            flags = ctypes.c_ulong(_BIND | _REC)
            _check(libc.mount(source, os.fsencode(folder), None, flags, None))
    if user.startswith("in:"):
        _enter_namespace(libc, int(user.removeprefix("in:")))
        user = "0"
    os.setgroups([])
    os.setresgid(*[int(user)] * 3)
    os.setresuid(*[int(user)] * 3)
    # This user cannot write where coverage, if it measures, wants its data.
    environ = {name: text for name, text in os.environ.items() if not name.startswith("COVERAGE_")}
    os.execve(sys.argv[split + 1], sys.argv[split + 1 :], environ)


def _enter_namespace(libc: ctypes.CDLL, first: int) -> None:
    """Returns in a child; its parent, which alone may map its ids, ends as it ends."""
    reader, writer = os.pipe()
    mapped, mapping = os.pipe()
    child = os.fork()
    if not child:
        _check(libc.unshare(_NEWUSER))
        os.close(writer)
        os.close(mapping)
        os.read(mapped, 1)
        return
    os.close(writer)
    os.read(reader, 1)  # ends when the child has let go of its side, in its namespace
    for kind in ("uid", "gid"):
        Path(f"/proc/{child}/{kind}_map").write_text(f"0 {first} 65536")
    os.close(mapping)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)


def _closed_above(folder: Path) -> Path | None:
    """The highest folder above it that others may not enter."""
    above = [each for each in reversed(folder.resolve().parents) if not each.stat().st_mode & 0o001]
    return above[0] if above else None


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
