"""Real implementations in memory, with knobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from hotplate.deploy.engine import Node, Replica, ReplicaState
from hotplate.deploy.errors import UnknownReplica
from hotplate.deploy.process.growing_file import followed
from hotplate.deploy.standbys import Standbys, StandbySettings, StandbyView
from hotplate.deploy.workload import Resources, Workload, WorkloadKey


class FakeStandbys:
    """None are kept, whatever is set."""

    memory_bytes = 0

    def __init__(self) -> None:
        self.settings = StandbySettings()
        self.allowances: Mapping[str, int] = {}
        self.forgotten: list[str] = []

    def set(self, settings: StandbySettings) -> None:
        self.settings = settings

    def allow(self, allowances: Mapping[str, int]) -> None:
        self.allowances = allowances

    def forget(self, owners: Collection[str]) -> None:
        self.forgotten += owners

    def views(self) -> Sequence[StandbyView]:
        return ()


class FakeEngine:
    """An engine whose replicas are entries of a dict; a test says what becomes of them."""

    def __init__(self, *, ready_at_once: bool = True, survivors: FakeEngine | None = None) -> None:
        """`survivors` is an engine that was killed: its replicas are adopted, not its wishes."""
        self.ready_at_once: bool = survivors.ready_at_once if survivors else ready_at_once
        self.found: dict[str, Replica] = dict(survivors.found) if survivors else {}
        self.wishes: dict[WorkloadKey, int] = {}
        self.removed: list[str] = []
        self.standbys: Standbys = FakeStandbys()
        self.expected: frozenset[WorkloadKey] | None = None
        """Those that may have replicas, as was said last."""
        self.failure: Exception | None = None
        """What starting and stopping replicas fails with."""
        self.ends_others = False
        """Whether another one ends in place of one that is to be removed, if it can: its requests
        are cut only when it is buried."""
        self.room: Resources | None = Resources(8, 1 << 34)
        """What there may ever be."""
        self.refuses = ""
        """Why it is not let make replicas, as by a quota of its own; empty = it is."""
        self.footprints: dict[str, int] = {}
        """By service, what one replica takes of the memory."""
        self.log_files: dict[str, Path] = {}
        """By replica."""
        self._news = asyncio.Event()
        self._made: int = survivors._made if survivors else 0

    async def start(self) -> None:
        pass

    async def scale(self, workload: Workload, count: int, *, remove: Collection[str] = ()) -> None:
        if self.failure:
            raise self.failure
        key = workload.key
        before = dict(self.found)
        self.wishes[key] = count
        if self.expected is not None:
            self.expected |= {key}
        for name in remove:
            others = [r for r in self._mine(key) if r.id not in remove]
            if self.ends_others and others:
                self.become(others[0].id, ReplicaState.STOPPING)
            elif self.found.pop(name, None):
                self.removed.append(name)
        mine = self._mine(key)
        for replica in mine[count:]:
            self.removed.append(replica.id)
            del self.found[replica.id]
        for _ in range(count - len(mine)):
            self._add(workload)
        if self.found != before:
            self._news.set()

    async def expect(self, workloads: Collection[Workload]) -> None:
        self.expected = frozenset(workload.key for workload in workloads)
        unwanted = [name for name, each in self.found.items() if each.key not in self.expected]
        for name in unwanted:
            self.removed.append(name)
            del self.found[name]
        if unwanted:
            self._news.set()

    def replicas(self) -> Sequence[Replica]:
        return list(self.found.values())

    async def changed(self) -> None:
        await self._news.wait()
        self._news.clear()

    async def logs(self, replica: str, lines: int) -> list[str]:
        if replica not in self.found:
            raise UnknownReplica(f"no replica {replica}")
        return [f"{replica} says hello"][-lines:]

    def follow(self, replica: str, lines: int | None = None) -> AsyncGenerator[str, None]:
        if replica not in self.log_files:
            raise UnknownReplica(f"no replica {replica}")
        return followed(self.log_files[replica], lines, lambda: replica in self.found)

    def capacity(self) -> Mapping[str, Node]:
        return {"here": Node(self.room or Resources(8, 1 << 34), Resources(), cpus=8)}

    def bounds(self) -> Resources | None:
        return self.room

    def grow(self, room: Resources | None) -> None:
        """So much may there be from now on."""
        self.room = room
        self._news.set()

    def footprint_bytes(self, key: WorkloadKey) -> int:
        return self.footprints.get(key.service, 0)

    async def stop_all(self) -> None:
        self.removed += self.found
        self.found.clear()
        self._news.set()

    async def close(self) -> None:
        pass

    def become(
        self,
        name: str,
        state: ReplicaState,
        reason: str = "",
        restarts: int = 0,
        build_log: str = "",
    ) -> None:
        """What a test wants a replica to be from now on."""
        before = self.found[name]
        ready_at = _now() if state is ReplicaState.READY else before.ready_at
        self.found[name] = replace(
            before,
            state=state,
            reason=reason,
            restarts=restarts,
            ready_at=ready_at,
            build_log=build_log,
        )
        self._news.set()

    def bury(self) -> None:
        """Nothing is left of what was being stopped."""
        stopping = ReplicaState.STOPPING
        self.found = {n: r for n, r in self.found.items() if r.state is not stopping}
        self._news.set()

    def of(self, revision: int) -> list[Replica]:
        return [replica for replica in self.found.values() if replica.key.revision == revision]

    def _mine(self, key: WorkloadKey) -> list[Replica]:
        stopping = ReplicaState.STOPPING
        return [r for r in self.found.values() if r.key == key and r.state is not stopping]

    async def allow(self, workload: Workload) -> None:
        """It may make those of the workload that it was refused."""
        self.refuses = ""
        mine = self._mine(workload.key)
        self.found = {n: r for n, r in self.found.items() if r not in mine or r.uid}
        await self.scale(workload, len(mine))

    def _add(self, workload: Workload) -> None:
        self._made += 1
        if self.refuses:
            name = f"{workload.key.deployment}-{workload.key.revision}-refused-{self._made}"
            waits = ReplicaState.PENDING
            self.found[name] = Replica(name, workload.key, waits, reason=self.refuses)
            return
        name = f"{workload.key.deployment}-{workload.key.revision}-{self._made}"
        state = ReplicaState.READY if self.ready_at_once else ReplicaState.STARTING
        self.found[name] = Replica(
            name,
            workload.key,
            state,
            uid=f"uid-{self._made}",
            node="here",
            address=f"127.0.0.1:{20000 + self._made}",
            resources=workload.resources,
            created_at=_now(),
            ready_at=_now() if self.ready_at_once else None,
        )


def _now() -> float:
    return datetime.now(UTC).timestamp()
