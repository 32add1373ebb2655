"""What the controller asks of whatever makes replicas exist.

An engine is told how many replicas a *workload* (one service of one revision) should have and
reports what there is; it never decides how many. `LocalEngine` starts processes; a Kubernetes
engine maps a workload to a Deployment written through `/scale`, and `remove` to pod deletion cost.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from hotplate.deploy.phases import Phase
from hotplate.deploy.standbys import Standbys
from hotplate.deploy.workload import Resources, Workload, WorkloadKey


class ReplicaState(StrEnum):
    PENDING = "pending"
    """Wanted, but it (or a disk for it) has no room yet; `reason` says what is missing."""
    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    """Was ready, now its process runs but its readiness check fails."""
    BACKOFF = "backoff"
    """It ended by itself; it starts again at `retry_at`."""
    STOPPING = "stopping"
    """It is to end, as the caller wants it or by itself (its node goes, somebody deletes it): it
    takes nothing new, and what it has begun may go on until its grace is over."""
    FAILED = "failed"
    """It cannot start and will not be tried again (environment cannot be built, bad bento …)."""


ENDS_FIRST = (
    ReplicaState.FAILED,
    ReplicaState.PENDING,
    ReplicaState.BACKOFF,
    ReplicaState.STARTING,
    ReplicaState.UNREADY,
    ReplicaState.READY,
)
"""Which replicas are given up first when there are too many: those that serve nobody."""


@dataclass(frozen=True)
class Replica:
    """One observed replica."""

    id: str
    key: WorkloadKey
    state: ReplicaState
    uid: str = ""
    """What no other replica ever has, whatever its id or address. Empty = the engine was not let
    make it, and it waits under a name alone."""
    node: str = ""
    """Where it is, as `capacity` names it; empty while it has no place."""
    shared_name: str = ""
    """What its variables call it, where they were written before it had an id: it is the same for
    all of its workload. Empty = they say its id."""
    reason: str = ""
    """One sentence: why it is pending, in back-off or failed."""
    address: str = ""
    """unix: and the path of its socket, once its process has been started; host:port of one that
    an older engine has started."""
    self_report: Mapping[str, Any] | None = None
    """What its process has said of itself, once it was ready, as its runtime reads it."""
    resources: Resources = field(default_factory=Resources)
    """What it holds, or waits for."""
    memory_bytes: int = field(default=0, compare=False)
    """What is its own of the memory, as read last: a page that n processes share counts 1/n. 0 = it
    has not been read. A new reading is no change of the replica."""
    restarts: int = 0
    created_at: float = 0.0
    ready_at: float | None = None
    phases: tuple[Phase, ...] = field(default=(), compare=False)
    """Of its cold start so far. They go on by themselves, so a replica is the same with others."""
    phases_known: bool = True
    """False while its process may still say what the phases of its cold start were."""
    pool: str = field(default="", compare=False)
    """Which pool's standbys it could start from; empty = none's, or an older engine started it."""
    forked: bool = field(default=False, compare=False)
    """Whether a template of that pool has forked it."""
    log_tail: tuple[str, ...] = ()
    """Last lines of its log, when it ended by itself."""
    manifests: tuple[str, ...] = field(default=(), compare=False)
    """Those of all files that it uses."""
    build_log: str = ""
    """The file with the output of the build that it waits for; empty while there is none."""
    unbuilt: bool = False
    """Whether its last start ended because its environment could not be built."""

    @property
    def leaves(self) -> bool:
        """Whether it is being stopped and may have requests that it still ends."""
        return self.state is ReplicaState.STOPPING and self.ready_at is not None

    @property
    def named_inside(self) -> str:
        """What its variables call it."""
        return self.shared_name or self.id

    @property
    def wanted_at(self) -> float:
        """Where its cold start begins: when it was created, and after an end of its own when the
        pause was over."""
        return self.phases[0].start if self.phases else self.created_at

    @property
    def cold_start_s(self) -> float:
        """From wanted to ready; 0 while it is not."""
        return 0.0 if self.ready_at is None else self.ready_at - self.wanted_at


class ReplicaUsage(NamedTuple):
    """What a replica has used; None = that is not known."""

    cpu_s: float | None = None
    """CPU time since it, or the warm process that it was, began."""
    memory_bytes: int | None = None
    """Of its control group, without cached files that could be dropped."""
    gpu_share: float | None = None
    """How much of its GPUs' time they worked lately: 0 to 1."""
    gpu_memory_bytes: int | None = None


class Node(NamedTuple):
    """What a node has for replicas."""

    in_all: Resources
    """What is promised at most; of CPUs that may be more than there are."""
    taken: Resources
    """What replicas and warm processes hold of it: of memory what was asked for, and what is their
    own of those that asked for none."""
    cpus: float
    """Those that there are."""
    labels: Mapping[str, str] = MappingProxyType({})
    """What else is said of it."""


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What there is for replicas in all: limits and instance types are made of it."""

    most: Resources
    """The most that one replica may ask for."""
    cpus_shared: bool = False
    """Whether CPUs are promised more than once."""
    memory_note: str = ""
    """What stands behind the memory that there is; "" where nothing else has any."""
    gpu_names: tuple[str, ...] = ()
    """The name of each GPU."""


class Engine(Protocol):
    """Level-triggered: calls state what should be; `replicas()` says what is."""

    standbys: Standbys
    """Those that it keeps for its replicas."""

    async def start(self) -> None:
        """Begin; adopt replicas that an earlier engine on the same state left running."""

    async def scale(self, workload: Workload, count: int, *, remove: Collection[str] = ()) -> None:
        """Want `count` replicas of the workload, of which none is in `remove`.

        Returns once noted, not once done; the same call again changes nothing. Replicas in
        `remove` have been drained by the caller and end first, as far as that is the engine's to
        say: where another one ends in place of it, that one is `STOPPING` with its requests.
        `count` 0 stops them all. The workload is expected from now on, until an `expect` that
        lacks it.
        """

    async def expect(self, workloads: Collection[Workload]) -> None:
        """These and no others may have replicas, those that are asleep too: what a start of theirs
        needs may be made ahead, and replicas of all others are stopped, which end what they have
        begun.

        Returns once noted, not once done. Until the first call nothing adopted is stopped, however
        long that takes.
        """

    def replicas(self) -> Sequence[Replica]:
        """All replicas, also those that are being stopped."""

    async def changed(self) -> None:
        """Return when anything in `replicas()`, `capacity()` or `bounds()` has changed since the
        last return, but for what nodes have taken."""

    async def logs(self, replica: str, lines: int) -> list[str]:
        """The last lines of a replica's log, also of one that has ended lately.

        Raises `UnknownReplica`.
        """

    def follow(self, replica: str, lines: int | None = None) -> AsyncGenerator[str, None]:
        """The last lines of its log (None = all that there are) and whatever comes, piece by piece
        and printable, until it has ended and all of it was given; an empty piece is between some
        lines and what comes, where the engine can tell. Raises `UnknownReplica`, now or at the
        first piece. To be closed by whoever leaves before."""

    def capacity(self) -> Mapping[str, Node]:
        """What each node has now, by its name."""

    def bounds(self) -> Resources | None:
        """What there may ever be for all replicas together, on nodes that are added too; None
        where nodes are added as they are needed. Replicas beyond it are never asked for."""

    def footprint_bytes(self, key: WorkloadKey) -> int:
        """What one more replica of the workload would take of the memory if it asks for none; 0 =
        not known."""

    async def stop_all(self) -> None:
        """Stop every replica (SIGTERM, grace, SIGKILL) and wait until they are gone."""

    async def close(self) -> None:
        """Leave; replicas go on running."""
