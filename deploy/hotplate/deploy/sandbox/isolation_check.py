"""Which walls this machine can put up around replicas, found by trying to get through them.

A program of ours (`escape_attempts.py`) is put behind walls as a replica is, and tries what they
are to keep it from: on things that were laid out for it, and on what it may find open and leave as
it is.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hotplate.deploy.errors import DeployError
from hotplate.deploy.sandbox.cgroups import PIDS_MAX, own_groups
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.process_scope import WatchedScope
from hotplate.deploy.sandbox.visible_files import VisibleFiles

_BURGLAR = Path(__file__).with_name("escape_attempts.py")
_LIMIT_S = 30.0
_MOST = {"RLIMIT_NPROC": PIDS_MAX, "RLIMIT_NOFILE": 65_536}
"""What limits walls set at most."""
_IPC_CREAT, _IPC_RMID = 0o1000, 0
"""From linux/ipc.h."""


class CheckState(StrEnum):
    OK = "ok"
    WEAK = "weak"
    """There is something in its place that does less."""
    MISSING = "missing"


@dataclass(frozen=True)
class CheckResult:
    """What is to be said of one wall."""

    name: str
    state: CheckState
    sentence: str
    tried: bool = True
    """Whether that was found by trying; else it was read somewhere."""


@dataclass(frozen=True)
class _Wall:
    name: str
    stands: str
    """The sentence while it does."""
    attempts: Mapping[str, str]
    """Of `escape_attempts.py`; what a replica can do where one of them succeeds."""


WALLS = (
    _Wall(
        "files",
        "a replica sees no files of the platform, of other replicas or of users",
        {
            "platform's file": "read the platform's files",
            "other replica's file": "read other replicas' files",
            "other replica's socket": "call other replicas past the gateway",
            "machine's /tmp": "read the machine's temporary files",
            "machine's /dev/shm": "read what other programs share in /dev/shm",
            "home": "look into the home of the platform's user",
        },
    ),
    _Wall(
        "machine",
        "a replica changes no file of the machine, no control group and no setting of the kernel",
        {
            "write /etc": "write to /etc",
            "write /usr": "write to /usr",
            "control groups": "change control groups, its own limits among them",
            "kernel's settings": "change settings of the kernel",
        },
    ),
    _Wall(
        "processes",
        "a replica sees no process but its own, and can end, stop, limit or read no other",
        {
            "see processes": "see the processes of this machine",
            "signal a process": "end and stop processes of the platform's user",
            "limit a process": "change their limits",
            "environment of a process": "read their variables",
        },
    ),
    _Wall(
        "ipc",
        "a replica has no shared memory, semaphores or queues with programs outside",
        {"shared memory": "attach to shared memory of other programs"},
    ),
    _Wall(
        "devices",
        "a replica has the usual devices and GPUs, no disk and nothing of the kernel's",
        {"devices": "open disks or the kernel's own devices"},
    ),
    _Wall(
        "privileges",
        "no program that a replica starts has more rights than it has, setuid or not",
        {"new privileges": "gain the rights of setuid programs"},
    ),
    _Wall(
        "limits",
        "a replica has limits of processes and open files that it cannot lift",
        {"lift a limit": "have as many processes or open files as it likes"},
    ),
    _Wall(
        "calls",
        "the kernel refuses to a replica the calls that no service needs",
        {
            "filter": "make every call of the kernel",
            "mount": "mount file systems",
            "see mounts anew": "make mounts and users of its own",
            "trees of mounts": "copy the tree of mounts",
            "keys": "reach the keys of its user",
            "packets": "read packets of the network",
            "kernel's cryptography": "reach the kernel's cryptography",
        },
    ),
)
_IDS = "ids"
_LEFT = "left"
"""A file that it leaves in its own folder."""


async def inspect(hidden: Path, isolation: Isolation) -> list[CheckResult]:
    """Every wall, tried as this user; `hidden` is the folder that stands for a data directory, in
    which a folder is made for this and removed. Raises OSError and DeployError."""
    with _laid_out(hidden) as (own, outside):
        got = await _sent(isolation, own, outside)
        owner = _owner(own / _LEFT)
    why = _why(isolation)
    findings = [_judged(wall, got, why) for wall in WALLS]
    if os.geteuid() == 0:
        findings.append(_of_ids(owner, why))
    return [*findings, memory()]


def advice(root: Path = Path("/")) -> list[str]:
    """What of this machine's settings keeps walls from being put up, and what to do, a sentence
    each."""
    found = []
    for file, bad, said in (
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000"),
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with "
            "'userns' for the interpreter",
        ),
    ):
        path = root / "proc/sys" / file
        with suppress(OSError):
            if path.read_text().strip() == bad:
                name = file.replace("/", ".")
                found.append(f"{name} is {bad}, which keeps users from having namespaces: {said}")
    with suppress(OSError):
        if "gvisor" in (root / "proc/version").read_text().lower():
            found.append("this kernel is gVisor, which has no such walls: run on Linux itself")
    return found


def _judged(wall: _Wall, got: Mapping[str, str | None], why: str) -> CheckResult:
    """From why each attempt was refused: None = it was not."""
    untried = [name for name in wall.attempts if name not in got]
    if untried:
        return CheckResult(
            wall.name, CheckState.MISSING, f"it could not be checked{why}", tried=False
        )
    through = [said for name, said in wall.attempts.items() if got[name] is None]
    if not through:
        return CheckResult(wall.name, CheckState.OK, wall.stands)
    return CheckResult(wall.name, CheckState.MISSING, f"a replica can {_listed(through)}{why}")


def _of_ids(owner: int, why: str) -> CheckResult:
    if owner:
        return CheckResult(
            _IDS, CheckState.OK, "a replica's users are nobody outside, though the platform is root"
        )
    return CheckResult(_IDS, CheckState.MISSING, f"a replica of this platform is root outside{why}")


def memory(root: Path = Path("/")) -> CheckResult:
    """Whether the kernel can hold replicas to their memory, by a group made and removed."""
    name = f"hotplate-doctor-{os.getpid()}"
    try:
        groups = own_groups(root)
        home = groups.get("memory") or groups[""]
        if "memory" not in groups and "memory" not in _read(home / "cgroup.controllers").split():
            raise OSError(0, "no memory controller", str(home))
        (home / name).mkdir()
        (home / name).rmdir()
    except (OSError, KeyError) as error:
        return CheckResult(
            "memory",
            CheckState.WEAK,
            "limits of memory are watched and not enforced by the kernel, because no control group "
            f"can be created here ({error}); run the platform in its own control group, "
            "with Delegate=yes",
        )
    return CheckResult("memory", CheckState.OK, "the kernel enforces each replica's memory limit")


def _why(isolation: Isolation) -> str:
    return f" ({isolation.missing})" if isolation.missing else ""


@contextmanager
def _laid_out(hidden: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A burglar's own folder, and all that lies outside of it."""
    mark = secrets.token_hex(8)
    with ExitStack() as stack:
        base = Path(stack.enter_context(_folder(hidden)))
        own, other = base / "own", base / "other"
        for folder in (own, own / "tmp", other):
            folder.mkdir()
        shutil.copy(_BURGLAR, own)
        outside: dict[str, Any] = {"victim": mark, "left": str(own / _LEFT)}
        outside["in home"] = _something_in(
            Path(os.path.expanduser("~")), [hidden, Path(sys.prefix), Path(sys.base_prefix)]
        )
        outside["limits"] = _MOST
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
    """One of our own that is removed at the end."""
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
    """A Unix socket that is listened at."""
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
    """Shared memory that everybody may attach to who sees it."""
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0, ctypes.c_size_t(4096), _IPC_CREAT | 0o666)
    try:
        yield segment
    finally:
        libc.shmctl(segment, _IPC_RMID, None)


@contextmanager
def _victim(mark: str) -> Iterator[None]:
    """A process of this user's, with the mark among its arguments."""
    argv = ["/bin/sh", "-c", "read _", mark]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.kill()


def _something_in(home: Path, needed: Sequence[Path]) -> str:
    """A thing in a home that no replica needs; "" where there is none."""
    with suppress(OSError):
        for path in sorted(home.iterdir()):
            if not any(path == each or path in each.parents for each in needed):
                return str(path)
    return ""


async def _sent(
    isolation: Isolation, own: Path, outside: Mapping[str, Any]
) -> dict[str, str | None]:
    """What became of each attempt."""
    said = own.parent / "said"
    process = await isolation.spawn(
        [sys.executable, "-I", "-S", str(own / _BURGLAR.name)],
        {"PATH": os.environ.get("PATH", os.defpath)},
        str(own),
        said,
        view=VisibleFiles(reads=(sys.prefix, sys.base_prefix), own=str(own)),
        scope=WatchedScope([], 0),
        stdin_json=dict(outside),
    )
    try:
        async with asyncio.timeout(_LIMIT_S):
            code = await process.wait()
    except TimeoutError:
        code = await process.terminate(0)
    text = said.read_text(errors="replace")
    try:
        found: dict[str, str | None] = json.loads(text)
    except ValueError as error:
        raise DeployError(
            f"the program that checks the isolation has ended with {code}: {text.strip()[-300:]}"
        ) from error
    return found


def _listed(phrases: Sequence[str]) -> str:
    *before, last = phrases
    return f"{', '.join(before)} and {last}" if before else last


def _owner(path: Path) -> int:
    """Root's where it is not there."""
    try:
        return path.stat().st_uid
    except OSError:
        return 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def kernel() -> str:
    """Which one this is, for people."""
    return f"{platform.system()} {platform.release()} on {platform.machine()}"
