"""Control groups: one per attempt, all under one of ours, inside the group that we run in.

Version 1 has one hierarchy per controller, version 2 one for all. In version 2 a group with
processes of its own may not limit groups below it, so where the group was handed to us
(systemd's `Delegate=`, the root of a container) the platform's processes move into one beside.

Where CPUs are shared, a group's weight is what its replica asked for: who asked for twice as much
gets twice as much when both want more than there is, and all of it while the other is idle.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from hotplate.deploy.process.detached import end_all
from hotplate.deploy.sandbox.process_scope import (
    ProcessScope,
    WatchedScope,
    entry,
    over_capacity,
    over_limit,
)
from hotplate.deploy.workload import Resources

PIDS_MAX = 4096
"""Processes and threads of one replica. Far above what a service needs, and low enough that a
fork bomb leaves process ids for the platform."""

_MARGIN_BYTES = 1 << 20
"""Memory is charged in batches: the last that was refused may have been as large as this."""

_SHARES_PER_CPU, _SHARES = 1024, (2, 262_144)
_WEIGHT_PER_CPU, _WEIGHTS = 100, (1, 10_000)
"""What the kernel gives a group of which nobody says anything, for one CPU, and the least and the
most that it takes: `cpu.shares` of version 1 and `cpu.weight` of version 2."""

_ROLES = "hotplate-roles"
_DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes with which systemd marks a group that it has handed over."""

log = logging.getLogger(__name__)


class Cgroup:
    """The group of one attempt: a folder per hierarchy, the one with the memory first."""

    def __init__(self, folders: Sequence[Path], limit_bytes: int, capacity_bytes: int) -> None:
        """The most that it may use, 0 = no limit, and that all of them may together."""
        self.folders = folders
        self._limit_bytes = limit_bytes
        self._capacity_bytes = capacity_bytes

    @property
    def entry(self) -> Sequence[str]:
        return entry(self.folders, self._limit_bytes)

    def enter(self, pid: int) -> None:
        for folder in self.folders:
            _write(folder / "cgroup.procs", str(pid))

    def members(self) -> Collection[int]:
        found: set[int] = set()
        for folder in self.folders:
            found.update(map(int, _read(folder / "cgroup.procs").split()))
        return found

    def used_bytes(self) -> int:
        return 0  # the kernel looks

    def excess(self) -> str:
        if not _was_killed(self.folders[0]):
            return ""
        if _was_full(self.folders[0], self._limit_bytes):
            return over_limit(self._limit_bytes)
        return over_capacity(self._capacity_bytes)

    def seal(self) -> None:
        for folder in self.folders:
            with suppress(OSError):
                _write(folder / "pids.max", "0")

    def remove(self) -> None:
        for folder in self.folders:
            with suppress(FileNotFoundError):
                folder.rmdir()

    def make(self) -> None:
        """Raises OSError where that is refused."""
        for folder in self.folders:
            folder.mkdir()
            _write_if_there(folder / "pids.max", str(PIDS_MAX))
        if self._limit_bytes:
            _limit_memory(self.folders[0], self._limit_bytes)
        # Half a replica is of no use; version 1 cannot say this, and whoever watches does it.
        _write_if_there(self.folders[0] / "memory.oom.group", "1")


class Cgroups:
    """Makes the enclosures of one engine."""

    def __init__(
        self,
        directory: Path,
        capacity_bytes: int,
        root: Path = Path("/"),
        *,
        shared_cpus: float = 0.0,
    ) -> None:
        """`directory` is the engine's own; `capacity_bytes` is what all replicas may use together,
        and so are `shared_cpus`, by weight; 0 = nobody weighs more than another.

        `root` is where proc/ and sys/ are found.
        """
        self._capacity_bytes = capacity_bytes
        self._parents: tuple[Path, ...] = ()
        self._weighs = shared_cpus > 0
        name = group_name(directory)
        try:
            self._parents = _parents(root, name)
            for parent in self._parents:
                parent.mkdir(exist_ok=True)
                _enable_below(parent)
            _limit_memory(self._parents[0], capacity_bytes)
        except OSError as error:
            self._give_up(error)
        else:
            if self._weighs:
                self._parents += _sharing(root, name, self._parents[0], shared_cpus)
            self._parents += _counting(root, name, self._parents)

    @property
    def enforced(self) -> bool:
        """Whether the kernel holds replicas to their limits, or we only watch."""
        return bool(self._parents)

    def folders(self, replica: str) -> list[Path]:
        """Where the groups of a replica are made; none without control groups."""
        return [parent / replica for parent in self._parents]

    async def make(self, replica: str, mark: Path, resources: Resources) -> ProcessScope:
        """A new scope for an attempt of the replica whose marker is `mark`."""
        if self._parents:
            group = self._group(self.folders(replica), resources.memory_bytes)
            try:
                await end_groups(group.folders)  # of an attempt that nobody has cleared away
                group.make()
                self._weigh(group.folders, resources.cpus)
                return group
            except OSError as error:
                self._give_up(error)
        return WatchedScope([mark], resources.memory_bytes)

    def adopt(
        self, groups: Sequence[Path], marks: Sequence[Path], limit_bytes: int
    ) -> ProcessScope:
        """The scope that an earlier engine made: `groups` are its folders, if it had any."""
        return self._group(groups, limit_bytes) if groups else WatchedScope(marks, limit_bytes)

    def hand_over(
        self, groups: Sequence[Path], marks: Sequence[Path], resources: Resources
    ) -> ProcessScope:
        """The scope of a standby, made without a limit, for the replica that it becomes.

        Raises OSError where more is used than the replica may.
        """
        if groups and resources.memory_bytes:
            _limit_memory(groups[0], resources.memory_bytes)
        self._weigh(groups, resources.cpus)
        return self.adopt(groups, marks, resources.memory_bytes)

    def leftovers(self, kept: Collection[Path]) -> list[Path]:
        """Groups of ours that are not among `kept`."""
        found = [folder for parent in self._parents for folder in parent.iterdir()]
        return [each for each in found if each.is_dir() and each not in kept]

    def close(self) -> None:
        """Leave; our own group goes too when nothing runs in it."""
        for parent in self._parents:
            with suppress(OSError):
                parent.rmdir()

    def _weigh(self, folders: Sequence[Path], cpus: float) -> None:
        """A replica that asked for no CPU weighs as one that asked for one."""
        if self._weighs:
            for folder in folders:
                _set_weight(folder, cpus or 1.0)

    def _group(self, folders: Sequence[Path], limit_bytes: int) -> Cgroup:
        return Cgroup(folders, limit_bytes, self._capacity_bytes)

    def _give_up(self, error: OSError) -> None:
        self._parents = ()
        log.warning(
            "control groups cannot be used (%s): memory limits of replicas are watched, which is "
            "slower than the kernel; run the platform in its own control group, with Delegate=yes",
            error,
        )


def group_name(directory: Path) -> str:
    """Of the group that holds those of an engine with this directory."""
    digest = hashlib.blake2b(bytes(directory.resolve()), digest_size=4).hexdigest()
    return f"hotplate-{digest}"


async def end_groups(folders: Collection[Path]) -> None:
    """Kill all that is in these groups, and remove them, as far as they exist.

    Raises OSError where that is refused.
    """
    group = Cgroup([folder for folder in folders if folder.is_dir()], 0, 0)
    group.seal()
    await end_all(group.members)
    group.remove()


def _parents(root: Path, name: str) -> tuple[Path, ...]:
    """Where groups of ours can be made: one folder, or one per hierarchy. Raises OSError."""
    mount, own = root / "sys/fs/cgroup", own_groups(root)
    if "memory" in own:
        return tuple(own[each] / name for each in ("memory", "pids") if each in own)
    if "" not in own:
        raise FileNotFoundError(errno.ENOENT, "no control groups", str(mount))
    home = own[""].parent if own[""].name == _ROLES else own[""]
    if "memory" not in _read(home / "cgroup.controllers").split():
        raise PermissionError(errno.EPERM, "no memory controller", str(home))
    _delegate(home, mount)
    return (home / name,)


def own_groups(root: Path) -> dict[str, Path]:
    """The group that we are in, per controller; "" is that of version 2. Raises OSError."""
    own = {}
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = root / "sys/fs/cgroup" / controllers / path.strip("/")
    return own


def _sharing(root: Path, name: str, parent: Path, cpus: float) -> tuple[Path, ...]:
    """Have the groups below `parent` share CPUs by weight: the further folder where version 1 keeps
    these. Where that is refused, the kernel shares as if there were no groups.

    All replicas weigh as one thread of the platform's on each CPU, else what the platform does
    beside them, such as building an environment, would take most of the machine from them.
    """
    with suppress(OSError):
        own = own_groups(root)
        if "memory" not in own:
            for folder in (parent.parent, parent):
                _enable_below(folder, ("cpu",))
        elif "cpu" in own and own["cpu"] != own.get("cpuset"):  # whose groups begin without a CPU
            folder = own["cpu"] / name
            folder.mkdir(exist_ok=True)
            _set_weight(folder, cpus)
            return (folder,)
    return ()


def _counting(root: Path, name: str, parents: Sequence[Path]) -> tuple[Path, ...]:
    """The further folder where version 1 counts the CPU time of groups, if it is not among those
    that there are; none where that is refused, and then nobody knows."""
    with suppress(OSError):
        own = own_groups(root)
        if "cpuacct" in own and own["cpuacct"] != own.get("cpuset"):
            folder = own["cpuacct"] / name
            if not any(parent.samefile(folder) for parent in parents if folder.exists()):
                folder.mkdir(exist_ok=True)
                return (folder,)
    return ()


def _set_weight(folder: Path, cpus: float) -> None:
    """So much as that of many CPUs is; weights that the kernel refuses are left alone."""
    for file, per_cpu, (least, most) in (
        ("cpu.shares", _SHARES_PER_CPU, _SHARES),
        ("cpu.weight", _WEIGHT_PER_CPU, _WEIGHTS),
    ):
        with suppress(OSError):
            _write_if_there(folder / file, str(min(most, max(least, round(per_cpu * cpus)))))


def _delegate(home: Path, mount: Path) -> None:
    """Version 2: let groups below `home` be limited. Raises OSError."""
    try:
        _enable_below(home)
    except OSError as error:
        if error.errno != errno.EBUSY or not (home == mount or _is_delegated(home)):
            raise
        roles = home / _ROLES
        roles.mkdir(exist_ok=True)
        for pid in _read(home / "cgroup.procs").split():
            with suppress(ProcessLookupError):
                _write(roles / "cgroup.procs", pid)
        _enable_below(home)


def _is_delegated(home: Path) -> bool:
    for attribute in _DELEGATED:
        with suppress(OSError):
            if os.getxattr(home, attribute) == b"1":
                return True
    return False


def _enable_below(folder: Path, wanted: Sequence[str] = ("memory", "pids")) -> None:
    """Version 2 has a list of controllers that groups below may use; version 1 needs none."""
    control = folder / "cgroup.subtree_control"
    there = _read(folder / "cgroup.controllers").split()
    if control.exists() and (usable := [f"+{each}" for each in wanted if each in there]):
        _write(control, " ".join(usable))


def _limit_memory(folder: Path, limit_bytes: int) -> None:
    """A hard limit; what is over it may not go to swap either. Raises OSError."""
    if (folder / "memory.max").exists():
        _write(folder / "memory.max", str(limit_bytes))
        _write_if_there(folder / "memory.swap.max", "0")
    else:
        _write(folder / "memory.limit_in_bytes", str(limit_bytes))
        _write_if_there(folder / "memory.memsw.limit_in_bytes", str(limit_bytes))


def _was_killed(folder: Path) -> bool:
    """Whether the kernel has killed a process of the group for want of memory."""
    return (
        _count(folder, "memory.events", "oom_kill")
        + _count(folder, "memory.oom_control", "oom_kill")
        > 0
    )


def _was_full(folder: Path, limit_bytes: int) -> bool:
    """Whether its own limit was in the way, not one above it."""
    if not limit_bytes:
        return False
    peak_bytes = int(_read(folder / "memory.max_usage_in_bytes") or 0)  # version 1
    return peak_bytes + _MARGIN_BYTES >= limit_bytes or _count(folder, "memory.events", "oom") > 0


def _count(folder: Path, file: str, name: str) -> int:
    """The number beside a name in a file of such lines; 0 if it is not there."""
    counts = dict(map(str.split, _read(folder / file).splitlines()))
    return int(counts.get(name, 0))


def _write_if_there(path: Path, text: str) -> None:
    if path.exists():
        _write(path, text)


def _write(path: Path, text: str) -> None:
    with path.open("r+") as file:  # the kernel makes these files, we never do
        file.write(text)


def _read(path: Path) -> str:
    """ "" for what is not there."""
    try:
        return path.read_text()
    except OSError:
        return ""
