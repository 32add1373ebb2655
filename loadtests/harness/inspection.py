"""Whether all that a platform runs belongs to something, and what its logs have of errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hotplate.deploy.sandbox.process_scope import REPLICA_DIR
from tests.support.end_to_end.census import ROLES
from tests.support.end_to_end.platform_process import DEPLOYMENT_PORTS, Platform
from tests.support.patience import until

_TCP_LISTEN = "0A"
_TRACEBACK = re.compile(r"^Traceback .*?\n((?:[ |].*\n)*)(\S.*)", re.MULTILINE)
_SESSION = 3
"""Field of /proc/<pid>/stat after the name."""


async def settled(platform: Platform, ports: Mapping[str, int], limit_s: float) -> str:
    """Waits until all is accounted for. After `limit_s` it returns a sentence about what is not.

    `ports` are those of the deployments that are to be there, by name.
    """
    trouble = ""

    async def fine() -> bool:
        nonlocal trouble
        trouble = await unaccounted(platform, ports)
        return not trouble

    with suppress(TimeoutError):
        await until(fine, limit_s)
    return trouble


async def unaccounted(platform: Platform, ports: Mapping[str, int]) -> str:
    """A sentence on the first thing that belongs to nothing in the platform's status, or ""."""
    roles = {role: platform.pid(role) for role in ROLES}
    if dead := [role for role, pid in roles.items() if _session_of(pid) is None]:
        return f"{dead[0]} does not run"
    leaders = dict.fromkeys(roles.values(), "a role")
    for name in ports:
        for replica in await platform.replicas(name):
            if pid := leader_of(platform, replica["id"]):
                leaders[pid] = replica["id"]
    # The first process of a replica's namespace is in no session of its leader's.
    namespaces = {_namespace_of(pid) for pid in leaders} - {_namespace_of(os.getpid()), ""}
    warm = _warm_folders(platform)
    pools = (await platform.page("standby"))["pools"]
    expected = sum(pool["ready"] + pool["making"] for pool in pools)
    if len(warm) - len(warm & _forked_from(platform)) > expected:
        return f"there are more warm processes than the {expected} that the platform says it has"
    for pid in platform.processes():
        session = _session_of(pid)
        known = pid in leaders or session in leaders or _namespace_of(pid) in namespaces
        if session is not None and not known and _marker_of(pid) not in warm:
            return f"process {pid} belongs to no role and no replica: {_command(pid)}"
    first = platform.port + 1
    listening = {port for port in _listening() if first <= port < first + DEPLOYMENT_PORTS}
    if strange := listening - set(ports.values()):
        return f"port {min(strange)} belongs to no deployment"
    if missing := set(ports.values()) - listening:
        return f"port {min(missing)} of a deployment is not listened on"
    return ""


def _warm_folders(platform: Platform) -> set[str]:
    """Of standbys and templates."""
    return {str(each / "work") for each in (platform.data / "engine" / "standbys").glob("*")}


def _forked_from(platform: Platform) -> set[str]:
    """Those of them that replicas were forked from, or have been, which may have ended since."""
    found = set()
    for born in (platform.data / "engine" / "replicas").glob("*/born"):
        with suppress(OSError):  # its replica has ended
            found.add(born.read_text())
    return found


def leader_of(platform: Platform, replica: str) -> int | None:
    """The process of a replica, as the engine has noted it."""
    record = platform.data / "engine" / "replicas" / replica / "state.json"
    with suppress(OSError, ValueError):
        pid: int = json.loads(record.read_text())["pid"]
        return pid
    return None


def children_of(parent: int) -> list[int]:
    with suppress(OSError):
        return [
            int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        ]
    return []


def tracebacks(log: str) -> list[str]:
    """Those in a role's log: each error, and where it was raised."""
    found = _TRACEBACK.findall(log)
    return [f"{what}, at {' '.join(frames.split())[-300:]}" for frames, what in found]


def _session_of(pid: int) -> int | None:
    """None for a process that has ended, also for a zombie."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[_SESSION])
    return None


def _marker_of(pid: int) -> str:
    """The folder by which an engine finds a process."""
    variable = f"{REPLICA_DIR}=".encode()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(variable):
                return os.fsdecode(entry.removeprefix(variable))
    return ""


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    return "it has just ended"


def _listening() -> set[int]:
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _TCP_LISTEN}


def _namespace_of(pid: int) -> str:
    """The process's PID namespace; empty if the process has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
