"""`container.py FOLDER IMAGE… -- PROGRAM…`: becomes the program as a container's runtime starts it.

Run by root. The program is the first process of its own, in a network of its own, as user 10001
without rights. Its root is read-only: the machine's folders that anybody may enter and each IMAGE
(of an interpreter, say) at their places, and on top of them the folders that FOLDER has: `hotplate`
with `env` (a link to an environment), `job` and `secrets` read-only, `scratch` and `memory`
(`/dev/shm`) to write. Prints the program's pid on a line, and ends as it ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

from hotplate.deploy.cluster.objects import USER

_NEWNS, _NEWPID, _NEWNET = 0x20000, 0x20000000, 0x40000000
_BIND, _REC, _PRIVATE, _REMOUNT, _RDONLY = 0x1000, 0x4000, 0x40000, 0x20, 0x1
_NO_NEW_PRIVS = 38
"""From linux/sched.h, sys/mount.h and sys/prctl.h."""
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
HIDDEN = {"proc", "dev", "tmp", "root", "hotplate", "scratch", "job", "secrets"}
DEVICES = ("null", "zero", "random", "urandom")

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    split = sys.argv.index("--")
    folder, *images = map(Path, sys.argv[1:split])
    _check(libc.unshare(_NEWNS | _NEWPID | _NEWNET))
    child = os.fork()
    if child == 0:
        _make_root(folder, images)
        _raise_loopback()
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        os.dup2(2, 1)
        _check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
        os.execv(sys.argv[split + 1], sys.argv[split + 1 :])
    print(child, flush=True)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(code if code >= 0 else 128 - code)


def _make_root(folder: Path, images: list[Path]) -> None:
    _mount("none", "/", "", _REC | _PRIVATE)
    root = folder / "root"
    root.mkdir(exist_ok=True)
    _mount("tmpfs", root, "tmpfs")
    root.chmod(0o755)
    for entry in Path("/").iterdir():
        if entry.is_symlink():
            (root / entry.name).symlink_to(entry.readlink())
        elif entry.is_dir() and entry.name not in HIDDEN:
            _bind(entry, root / entry.name)
    for image in images:
        _bind(image, root / image.relative_to("/"))
    (root / "proc").mkdir()
    _mount("proc", root / "proc", "proc")
    (root / "dev").mkdir()
    for name in DEVICES:
        (root / "dev" / name).touch()
        _mount(f"/dev/{name}", root / "dev" / name, "", _BIND)
    (root / "dev" / "shm").mkdir()
    _mount(folder / "memory", root / "dev" / "shm", "", _BIND)
    for name in ("hotplate", "job", "secrets", "scratch"):
        _bind(folder / name, root / name)
    _bind(Path(os.readlink(folder / "env")), root / "hotplate" / "env")
    for name in ("hotplate", "job", "secrets"):
        _mount("none", root / name, "", _REMOUNT | _BIND | _RDONLY)
    _mount("none", root, "", _REMOUNT | _RDONLY)
    os.chroot(root)
    os.chdir("/")


def _bind(source: Path, at: Path) -> None:
    at.mkdir(parents=True, exist_ok=True)
    _mount(source, at, "", _BIND | _REC)


def _mount(source: str | Path, at: str | Path, kind: str, flags: int = 0) -> None:
    given = (os.fsencode(source), os.fsencode(at), kind.encode() or None)
    _check(libc.mount(*given, ctypes.c_ulong(flags), None), at)


def _raise_loopback() -> None:
    with socket.socket() as asked:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(asked, _SIOCGIFFLAGS, request))
        fcntl.ioctl(asked, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _check(result: int, what: object = "") -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(what))


if __name__ == "__main__":
    main()
