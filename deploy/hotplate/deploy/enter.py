"""Becomes a replica's program, inside its control groups and walls from the first instruction on.

`python -I -S enter.py OOM_SCORE GROUP… -- WALLS DOOR PROGRAM ARGUMENT…`, where each GROUP is a
folder of the cgroup file system, WALLS has lines as `walls.py` writes them, and DOOR is a
descriptor or empty. Run as a file, so that nothing but the interpreter is loaded before.

The walls are a user namespace and a mount namespace in which hidden folders are empty but for the
paths that the program needs. Whoever lives there can neither take a mount away nor look into a
process outside. At the door a copy of us waits for paths that are needed later; it is no part of
the program, which cannot look into it either, but a child of whoever has started us.
"""

from __future__ import annotations

import os
import sys

HIDE, READ, WRITE = "hide", "read", "write"
"""How a line of WALLS begins; a blank and a path follow."""
SHOWN = b"shown "
"""Said at the door when a request was carried out, and by which process, which ends then; anything
else is why it was not."""

_NEWNS, _NEWUSER = 0x20000, 0x10000000
"""From linux/sched.h."""
_BIND, _REC = 0x1000, 0x4000
"""From sys/mount.h."""
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = 442, -100, 0x8000, 1
"""From linux/mount.h and fcntl.h; the call's number is that of all architectures (Linux 5.12)."""
_SYS_CLONE3, _CLONE_PARENT = 435, 0x8000
"""From linux/sched.h; the same number everywhere, too (Linux 5.3)."""
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 4, 24
_CAP_SYS_PTRACE, _CAP_SYS_ADMIN = 19, 21
"""From linux/prctl.h and linux/capability.h."""
_REQUEST_BYTES = 1 << 20


def main() -> None:
    """Exits with 127 and a sentence when the program cannot be started."""
    split = sys.argv.index("--")
    score, *groups = sys.argv[1:split]
    walls, door, *program = sys.argv[split + 1 :]
    _write("/proc/self/oom_score_adj", score)  # raising one's own is always allowed
    for group in groups:
        _write(f"{group}/cgroup.procs", "0")
    try:
        if walls:
            _wall_in(_lines(walls), int(door) if door else None)
        os.execve(program[0], program, _environment())
    except OSError as error:
        why = f"{error.filename}: {error.strerror}" if walls else error.strerror
        print(f"{program[0]} cannot be started in {os.getcwd()}: {why}", file=sys.stderr)
        sys.exit(127)


def _environment() -> dict[bytes, bytes]:
    """What we were started with, without what the interpreter has added (LC_CTYPE)."""
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().split(b"\0")
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _lines(walls: str) -> list[tuple[str, str]]:
    """What each line says of which path; outer paths first."""
    words = (line.split(" ", 1) for line in walls.splitlines())
    return sorted(((verb, path) for verb, path in words), key=lambda line: line[1])


def _wall_in(lines: list[tuple[str, str]], door: int | None) -> None:
    """Raises OSError where the kernel refuses any part of it."""
    kernel = _Kernel()
    here = os.getcwd()
    _leave_namespaces(kernel)
    # Opened before they are covered: through these, and through nothing else, we see what is below.
    behind = {path: os.open(path, os.O_PATH) for verb, path in lines if verb == HIDE}
    for folder in behind:
        kernel.mount("tmpfs", folder, "tmpfs", 0, "size=1m,mode=755")
    _show(kernel, behind, lines)
    os.chdir(here)  # else "..", from where we stood before, would lead behind the walls
    if door is not None:
        os.set_inheritable(door, False)
        if kernel.fork_sibling() == 0:
            try:
                _wait_at(door, kernel, behind)
            finally:
                os._exit(0)
    for capability in (_CAP_SYS_PTRACE, _CAP_SYS_ADMIN):
        kernel.prctl(_PR_CAPBSET_DROP, capability)


def _leave_namespaces(kernel: _Kernel) -> None:
    """For namespaces of our own, with the users that there were."""
    if os.geteuid() != 0:
        user, group = os.geteuid(), os.getegid()
        kernel.unshare(_NEWUSER | _NEWNS)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
        return
    us, ready = os.getpid(), os.pipe()
    maps = {name: _same_ids(f"/proc/self/{name}") for name in ("uid_map", "gid_map")}
    helper = os.fork()
    if helper == 0:  # only who stays outside may map more than one user
        os.close(ready[1])
        try:
            if os.read(ready[0], 1):
                for name, text in maps.items():
                    _write(f"/proc/{us}/{name}", text)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    try:
        kernel.unshare(_NEWUSER | _NEWNS)
        os.write(ready[1], b"1")
    finally:
        os.close(ready[0])
        os.close(ready[1])
        _, status = os.waitpid(helper, 0)
    if status:
        number = os.waitstatus_to_exitcode(status)
        raise OSError(number, os.strerror(number), "/proc/self/uid_map")


def _same_ids(path: str) -> str:
    """A map of every user that there is here to itself."""
    with open(path) as file:
        lines = [line.split() for line in file]
    return "".join(f"{inside} {inside} {count}\n" for inside, _, count in lines)


def _show(kernel: _Kernel, behind: dict[str, int], lines: list[tuple[str, str]]) -> None:
    """Have the paths to read and write where they were. Raises OSError."""
    for verb, path in lines:
        hider = next((each for each in behind if path.startswith(each + "/")), None)
        if verb == HIDE or hider is None:
            continue
        source = os.open(path[len(hider) + 1 :], os.O_PATH, dir_fd=behind[hider])
        name = f"/proc/self/fd/{source}"
        if os.path.isdir(name):
            os.makedirs(path, exist_ok=True)
        elif not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        kernel.mount(name, path, "none", _BIND | _REC, "")
        os.close(source)
        if verb == READ:
            kernel.make_read_only(path)


def _wait_at(door: int, kernel: _Kernel, behind: dict[str, int]) -> None:
    """Show what is asked for there, once, and say so or why that could not be."""
    kernel.prctl(_PR_SET_DUMPABLE, 0)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number != door and number not in behind.values():
            os.closerange(number, number + 1)  # of which one is gone: that of this list
    request = os.read(door, _REQUEST_BYTES)
    if not request:
        return
    answer = SHOWN + str(os.getpid()).encode()
    try:
        _show(kernel, behind, _lines(os.fsdecode(request)))
    except OSError as error:
        answer = os.fsencode(f"{error.filename}: {error.strerror}")
    os.write(door, answer)


class _Kernel:
    """Calls that the interpreter does not have. All raise OSError."""

    def __init__(self) -> None:
        import ctypes  # a third of our own start: only who needs it pays for it

        self._ctypes = ctypes
        self._libc = ctypes.CDLL(None, use_errno=True)

    def unshare(self, flags: int) -> None:
        self._check(self._libc.unshare(flags), "unshare")

    def fork_sibling(self) -> int:
        """As `os.fork`, but the new process is a child of our own parent: the program, which did
        not ask for it, need not wait for it, and it is no orphan that nobody may ever wait for."""
        arguments = (self._ctypes.c_uint64 * 8)(_CLONE_PARENT)
        size_bytes = self._ctypes.c_size_t(self._ctypes.sizeof(arguments))
        pid: int = self._libc.syscall(self._ctypes.c_long(_SYS_CLONE3), arguments, size_bytes)
        self._check(pid < 0, "clone3")
        return pid

    def mount(self, source: str, target: str, kind: str, flags: int, options: str) -> None:
        texts = (os.fsencode(source), os.fsencode(target), kind.encode())
        number = self._ctypes.c_ulong(flags)
        self._check(self._libc.mount(*texts, number, options.encode()), target)

    def make_read_only(self, path: str) -> None:
        """Other marks of the mount, which may be locked, stay as they are."""
        attributes = (self._ctypes.c_uint64 * 4)(_ATTR_RDONLY, 0, 0, 0)
        numbers = map(self._ctypes.c_long, (_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, 32))
        call, folder, flags, size = numbers
        result = self._libc.syscall(call, folder, os.fsencode(path), flags, attributes, size)
        self._check(result, path)

    def prctl(self, option: int, value: int) -> None:
        numbers = [self._ctypes.c_ulong(each) for each in (value, 0, 0, 0)]
        self._check(self._libc.prctl(option, *numbers), f"prctl {option}")

    def _check(self, result: int | bool, what: str) -> None:
        if result:
            number = self._ctypes.get_errno()
            raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    main()
