"""The standbys of one organization's environment on one set of GPUs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from hotplate.autoscaler.standby.planner import Stock, TypePlan
from hotplate.autoscaler.standby.start_history import StartHistory
from hotplate.deploy.local.placement import DEFAULT_MEMORY_BYTES
from hotplate.deploy.local.runtime import Warm
from hotplate.deploy.local.standby.warm_process import WarmProcess
from hotplate.deploy.process.backoff import Backoff
from hotplate.deploy.standbys import StandbyView

GPUS_BUSY = "its GPUs are a replica's"
MOST_SPENT = 3
"""Templates that may end, one after the other, because none could be forked from them."""


@dataclass
class StandbyPool:
    """Its members by id, the oldest first, and what is wanted of it."""

    warm: Warm
    """How its members are born; as the last start wanted it."""
    gpus: tuple[int, ...]
    ready: dict[str, WarmProcess] = field(default_factory=dict)
    making: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    plan: TypePlan | None = None
    size_bytes: int = 0
    """Memory of the last one when it became warm; 0 before. A template had forked nothing then: all
    of that is its own again when its forks have ended."""
    backoff: Backoff = field(default_factory=Backoff)
    unforkable: str = "it has not been looked at"
    """Why it has standbys and no template; empty = it has a template."""
    found_unforkable: str = ""
    """What a template of it has said of itself."""
    found_unusable: str = ""
    """What a warm process of it has said of itself: it has none, and its replicas start cold."""
    forks: int = 0
    """How many replicas were forked."""
    spent: int = 0
    """How many templates could not be forked since one of them was."""
    retry_at: float = 0.0
    """Loop time before which none is made, because one has failed."""
    cold: set[str] = field(default_factory=set)
    """Replicas that start without any of its members, until they are ready."""
    is_proven: bool = False
    """Whether a replica of it has been ready: what a template has to import is known."""
    waiting: int = 0
    """How many starts wait for a template."""

    @property
    def name(self) -> str:
        return name_of(self.warm, self.gpus)

    @property
    def count(self) -> int:
        return len(self.ready) + len(self.making)

    @property
    def each_bytes(self) -> int:
        return self.size_bytes or DEFAULT_MEMORY_BYTES

    @property
    def memory_bytes(self) -> int:
        """What they take now, those on their way like the last one."""
        read = (each.memory for each in self.ready.values())
        taken_bytes = sum(memory.own_bytes if memory else self.each_bytes for memory in read)
        return taken_bytes + len(self.making) * self.each_bytes

    @property
    def has_template(self) -> bool:
        """Whether it forks what starts now."""
        return any(each.is_template and not each.is_spent for each in self.ready.values())

    def stock(self) -> Stock:
        return Stock(tuple(self.ready), tuple(self.making), self.each_bytes)

    def take(self) -> WarmProcess | None:
        """The youngest that is ready: it has the latest list of modules. A template stays."""
        if not self.ready:
            return None
        name, youngest = self.ready.popitem()
        if youngest.is_template:
            self.ready[name] = youngest
        return youngest

    def is_crowded(self, cores: int) -> bool:
        """Whether so many start cold that what comes now is ready sooner as a fork of a template
        that is still to be made: the start of each takes a core's time, and that of the template no
        more than one of theirs."""
        might_fork = self.is_proven and not self.unforkable and not self.ready
        return might_fork and len(self.cold) >= cores

    def start_over(self, replica: str, *, ready: bool) -> None:
        """The cold start of that replica is; nothing happens if it is not one of its."""
        if replica in self.cold:
            self.cold.discard(replica)
            self.is_proven |= ready

    def started(self, replica: str, *, hit: bool) -> None:
        """The replica has; `hit` = from one of its members."""
        if not hit:
            self.cold.add(replica)
        if hit and not self.unforkable:
            self.forks += 1
            self.spent = 0

    def note_spent(self) -> None:
        """Its template has not forked what it was asked for, and ends."""
        self.spent += 1
        if self.spent >= MOST_SPENT:
            self.found_unforkable = (
                f"the last {self.spent} templates were ended without having forked anything; the "
                "log of the control plane says why"
            )

    def failed(self, now: float) -> None:
        """One did not become warm, or died: pause."""
        self.backoff, pause_s = self.backoff.failed(0.0)
        self.retry_at = now + pause_s

    def view(self, history: StartHistory, now: float) -> StandbyView:
        return StandbyView(
            pool=self.name,
            environment=self.warm.environment,
            gpus=self.gpus,
            ready=len(self.ready),
            making=len(self.making),
            wanted=self.plan.wanted if self.plan else 0,
            reason=self.plan.reason if self.plan else self.found_unusable or GPUS_BUSY,
            memory_bytes=self.memory_bytes,
            hits=history.hits(now),
            starts=history.starts(now),
            refill_s=history.refill_s,
            templates=sum(each.is_template for each in self.ready.values()),
            forks=self.forks,
            unforkable=self.unforkable,
            organization=self.warm.organization,
        )


def name_of(warm: Warm, gpus: Sequence[int]) -> str:
    where = "gpu " + ",".join(map(str, gpus)) if gpus else "cpu"
    return " ".join(filter(None, (warm.environment[:12], where, warm.variant, warm.organization)))
