"""What a platform has at one moment: processes, descriptors, ports, files, memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hotplate.deploy.local.ended_logs import ENDED_LOGS_KEPT
from tests.support.end_to_end.platform_process import Platform
from tests.support.memory import memory_bytes

ROLES = ("up", "agent", "gateway", "control-plane")
KEPT = ("blobs", "logs", "hotplate.db", "hotplate.db-wal", "hotplate.db-shm")
"""What may grow by design: what was pushed, what was said, what happened."""
USED = ".used"
"""Where it is kept which pushed bentos use an environment: grows with what was pushed."""
ENDED = "engine/ended"
_TCP_LISTEN = "0A"


@dataclass(frozen=True)
class Census:
    processes: int
    listening: int
    """TCP ports on which one of the processes listens."""
    descriptors: Mapping[str, int]
    """Open ones of each role."""
    memory_bytes: Mapping[str, int]
    """Pss of each role: what it shares with others counts in part."""
    files: Mapping[str, int]
    """Files and links below each folder of the data directory, but for those that are `KEPT`."""
    temporary: frozenset[str]
    """What lies in the temporary folder."""

    def leftovers(self, before: Census, connections: int = 0) -> list[str]:
        """What is there beyond what there was before, a sentence each; memory is not looked at.

        So many `connections` more may be open in each role: they are kept for the next request.
        """
        found = []
        counts = {"processes": (before.processes, self.processes)}
        counts["listening ports"] = (before.listening, self.listening)
        for role in ROLES:
            allowed = before.descriptors[role] + connections
            counts[f"descriptors of {role}"] = (allowed, self.descriptors[role])
        for folder in sorted({*before.files, *self.files} - {ENDED}):
            counts[f"files in {folder}"] = (before.files.get(folder, 0), self.files.get(folder, 0))
        for what, (then, now) in counts.items():
            if now > then:
                found.append(f"{what}: {then} before, {now} after")
        if self.files.get(ENDED, 0) > ENDED_LOGS_KEPT:
            found.append(f"{self.files[ENDED]} logs of ended replicas, not {ENDED_LOGS_KEPT}")
        if strange := self.temporary - before.temporary:
            found.append(f"temporary files: {', '.join(sorted(strange))}")
        return found


def take(platform: Platform, temporary: Path | None = None) -> Census:
    """Count; `temporary` is the platform's folder for temporary files, if it has its own."""
    pids = platform.processes()
    roles = {role: platform.pid(role) for role in ROLES}
    return Census(
        processes=len(pids),
        listening=_listening(pids),
        descriptors={role: len(list(_descriptors(pid))) for role, pid in roles.items()},
        memory_bytes={role: memory_bytes(pid) for role, pid in roles.items()},
        files=_files(platform.data),
        temporary=frozenset(os.listdir(temporary) if temporary else ()),
    )


def paths(data: Path) -> frozenset[str]:
    """Every file and link of the data directory, relative to it, but for those that are `KEPT`."""
    return frozenset(path for _, path in _walk(data))


def _descriptors(pid: int) -> Iterator[str]:
    """What each open descriptor of a process is."""
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")


def _listening(pids: list[int]) -> int:
    """Distinct listening TCP sockets that the processes hold."""
    held = {target for pid in pids for target in _descriptors(pid)}
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[3] == _TCP_LISTEN and f"socket:[{row[9]}]" in held for row in rows)


def _files(data: Path) -> dict[str, int]:
    """By the first two parts of their path: a folder of the platform, and what is in it."""
    return dict(Counter(folder for folder, _ in _walk(data)))


def _walk(data: Path) -> Iterator[tuple[str, str]]:
    """Each file's folder, by the first two parts of its path, and the path."""
    for folder, _, names in os.walk(data):
        parts = Path(folder).relative_to(data).parts
        if USED in parts:
            continue
        for name in names:
            if (*parts, name)[0] not in KEPT:
                yield "/".join(parts[:2]) or ".", "/".join((*parts, name))
