"""How well this machine can isolate replicas, found by trying to escape.

A program of ours (`escape_attempts.py`) is isolated as a replica is, and tries what isolation must
prevent: on targets that are laid out for it (`escape_targets.py`), and on what it finds open and
leaves unchanged.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hotplate.deploy.errors import DeployError
from hotplate.deploy.sandbox.cgroups import own_groups
from hotplate.deploy.sandbox.escape_targets import LEFTOVER, PROGRAM, escape_targets
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.process_scope import WatchedScope
from hotplate.deploy.sandbox.visible_files import VisibleFiles

_LIMIT_S = 30.0


class CheckState(StrEnum):
    OK = "ok"
    WEAK = "weak"
    """A weaker protection is in its place."""
    MISSING = "missing"


@dataclass(frozen=True)
class CheckResult:
    """The result for one wall."""

    name: str
    state: CheckState
    sentence: str
    tried: bool = True
    """Whether the result comes from an attempt; otherwise it was read from the system."""


@dataclass(frozen=True)
class _Wall:
    name: str
    passed_sentence: str
    """The sentence for a wall that no attempt has passed."""
    attempts: Mapping[str, str]
    """What a replica can do where an attempt succeeds, by the name of the attempt."""


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


async def inspect(hidden: Path, isolation: Isolation) -> list[CheckResult]:
    """The result for every wall, as this user. `hidden`: a folder that stands for a data directory;
    the check makes and removes a folder in it. Raises OSError and DeployError."""
    with escape_targets(hidden) as (own, outside):
        got = await _attempt_escapes(isolation, own, outside)
        owner = _owner(own / LEFTOVER)
    why = _why(isolation)
    findings = [_result_of(wall, got, why) for wall in WALLS]
    if os.geteuid() == 0:
        findings.append(_of_ids(owner, why))
    return [*findings, memory()]


def advice(root: Path = Path("/")) -> list[str]:
    """A sentence for each setting of this machine that prevents isolation, and what to do."""
    found = []
    for file, bad, remedy in (
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
                found.append(f"{name} is {bad}, which keeps users from having namespaces: {remedy}")
    with suppress(OSError):
        if "gvisor" in (root / "proc/version").read_text().lower():
            found.append("this kernel is gVisor, which has no such walls: run on Linux itself")
    return found


def _result_of(wall: _Wall, got: Mapping[str, str | None], why: str) -> CheckResult:
    """The result from why each attempt was refused; None = it was not refused."""
    untried = [name for name in wall.attempts if name not in got]
    if untried:
        return CheckResult(
            wall.name, CheckState.MISSING, f"it could not be checked{why}", tried=False
        )
    open_ways = [phrase for name, phrase in wall.attempts.items() if got[name] is None]
    if not open_ways:
        return CheckResult(wall.name, CheckState.OK, wall.passed_sentence)
    return CheckResult(wall.name, CheckState.MISSING, f"a replica can {_listed(open_ways)}{why}")


def _of_ids(owner: int, why: str) -> CheckResult:
    if owner:
        return CheckResult(
            _IDS, CheckState.OK, "a replica's users are nobody outside, though the platform is root"
        )
    return CheckResult(_IDS, CheckState.MISSING, f"a replica of this platform is root outside{why}")


def memory(root: Path = Path("/")) -> CheckResult:
    """Whether the kernel can enforce memory limits: a control group is made and removed."""
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


async def _attempt_escapes(
    isolation: Isolation, own: Path, outside: Mapping[str, Any]
) -> dict[str, str | None]:
    """Why each attempt was refused, by its name; None = it succeeded."""
    output = own.parent / "output"
    process = await isolation.spawn(
        [sys.executable, "-I", "-S", str(own / PROGRAM.name)],
        {"PATH": os.environ.get("PATH", os.defpath)},
        str(own),
        output,
        view=VisibleFiles(reads=(sys.prefix, sys.base_prefix), own=str(own)),
        scope=WatchedScope([], 0),
        stdin_json=dict(outside),
    )
    try:
        async with asyncio.timeout(_LIMIT_S):
            code = await process.wait()
    except TimeoutError:
        code = await process.terminate(0)
    text = output.read_text(errors="replace")
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
    """The user id of a file's owner; root's where there is no such file."""
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
    """This kernel's name and release, for people."""
    return f"{platform.system()} {platform.release()} on {platform.machine()}"
