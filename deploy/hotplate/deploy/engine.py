"""What the controller asks of whatever makes replicas exist.

An engine is told how many replicas a *workload* (one service of one revision) should have and
reports what there is; it never decides how many. `LocalEngine` starts processes; a Kubernetes
engine maps a workload to a Deployment written through `/scale`, and `remove` to pod deletion cost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True, order=True)
class WorkloadKey:
    """One service of one revision of one deployment."""

    organization: str
    deployment: str
    revision: int
    service: str

    def __str__(self) -> str:
        return f"{self.organization}/{self.deployment}@{self.revision}/{self.service}"


@dataclass(frozen=True)
class Resources:
    """An amount of CPUs, memory and GPUs; 0 CPUs means best effort (shares, not counted)."""

    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: float = 0.0


@dataclass(frozen=True)
class Model:
    """A BentoML model that the bento names; its files are a manifest in the blob store."""

    name: str
    version: str
    manifest: str
    """Digest of the cache manifest of the model's files."""


@dataclass(frozen=True)
class Workload:
    """All that is needed to run replicas of one service of one revision; immutable."""

    key: WorkloadKey
    bento_name: str
    bento_version: str
    bento_manifest: str
    """Digest of the cache manifest of the bento's files (bento.yaml, src/, env/ …)."""
    models: tuple[Model, ...] = ()
    entry: bool = True
    """Whether this is the bento's entry service."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the replica: deployment's, then service's, build stage excluded."""
    cloud: Mapping[str, str] = field(default_factory=dict)
    """Variables that tell a replica of its deployment; they go over `env`."""
    config_overrides: Mapping[str, Any] = field(default_factory=dict)
    """BentoML service configuration laid over the author's (`config_overrides`)."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The service's configuration as the author wrote it (`bento.yaml` services[].config)."""
    depends: Mapping[str, str] = field(default_factory=dict)
    """URL per service that this one depends on, with the secret that opens it."""
    resources: Resources = Resources()
    workers: int = 1
    cold_start_timeout_s: float = 1800.0
    """From placed to ready; then the attempt has failed."""
    stop_grace_s: float = 30.0
    """From SIGTERM to SIGKILL."""
    request_timeout_s: float = 60.0
    """How long one of its requests may take: a replica that is unready and silent for longer is
    ended."""

    @property
    def manifests(self) -> tuple[str, ...]:
        """Digests of the manifests of all the files that it needs."""
        return (self.bento_manifest, *(model.manifest for model in self.models))


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
"""Who is given up first when there are too many: those that serve nobody."""


@dataclass(frozen=True)
class Phase:
    """A part of a cold start. Times are Unix seconds."""

    name: str
    """instance | environment | process | init, one after the other; weights beside them."""
    start: float
    end: float | None = None
    share_s: float = 0.0
    """For how long the start waited for this one; known once the replica is ready. The shares of
    a cold start add up to its length."""


@dataclass(frozen=True)
class Replica:
    """One observed replica."""

    id: str
    key: WorkloadKey
    state: ReplicaState
    reason: str = ""
    """One sentence: why it is pending, in back-off or failed."""
    address: str = ""
    """unix: and the path of its socket, once its process has been started; host:port of one that
    an older engine has started."""
    told: Mapping[str, Any] | None = None
    """What its process has said of itself, once it was ready, as its runtime reads it."""
    resources: Resources = Resources()
    """What it holds, or waits for."""
    restarts: int = 0
    created_at: float = 0.0
    ready_at: float | None = None
    phases: tuple[Phase, ...] = ()
    log_tail: tuple[str, ...] = ()
    """Last lines of its log, when it ended by itself."""
    build_log: str = ""
    """The file with the output of the build that it waits for; empty while there is none."""

    @property
    def wanted_at(self) -> float:
        """Where its cold start begins: when it was created, and after an end of its own when the
        pause was over."""
        return self.phases[0].start if self.phases else self.created_at

    @property
    def cold_start_s(self) -> float:
        """From wanted to ready; 0 while it is not."""
        return 0.0 if self.ready_at is None else self.ready_at - self.wanted_at


class Node(NamedTuple):
    """What a node has for replicas."""

    in_all: Resources
    """What is promised at most; of CPUs that may be more than there are."""
    taken: Resources
    cpus: float
    """Those that there are."""


class Engine(Protocol):
    """Level-triggered: calls state what should be; `replicas()` says what is."""

    async def start(self) -> None:
        """Begin; adopt replicas that an earlier engine on the same state left running."""

    async def scale(self, workload: Workload, count: int, *, remove: Collection[str] = ()) -> None:
        """Want `count` replicas of the workload, of which none is in `remove`.

        Returns once noted, not once done; the same call again changes nothing. Replicas in
        `remove` have been drained by the caller and are stopped. `count` 0 stops them all.
        """

    async def settle(self) -> None:
        """All wishes are stated: what was adopted and nobody wants is stopped now.

        Until this call nothing adopted is stopped, however long that takes.
        """

    def replicas(self) -> Sequence[Replica]:
        """All replicas, also those that are being stopped."""

    async def changed(self) -> None:
        """Return when anything in `replicas()` has changed since the last return."""

    async def logs(self, replica: str, lines: int) -> list[str]:
        """The last lines of a replica's log, also of one that has ended lately.

        Raises `UnknownReplica`.
        """

    def capacity(self) -> Mapping[str, Node]:
        """What each node has, by its name."""

    async def stop_all(self) -> None:
        """Stop every replica (SIGTERM, grace, SIGKILL) and wait until they are gone."""

    async def close(self) -> None:
        """Leave; replicas go on running."""


@dataclass(frozen=True)
class Warm:
    """How to start a standby: a process that becomes any replica with an equal one of these.

    The engine adds to `env` what it adds for a replica, but for a listening socket
    `HOTPLATE_STANDBY_FD`, over which it talks to the process (`standby_process.py`).
    """

    environment: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    job: Mapping[str, Any]
    """What the process reads from its standard input; the engine adds its `folder`."""
    variant: str = ""
    """What else sets its replicas apart from others of the environment."""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    """As of a command."""
    takes_along: Mapping[str, str] = field(default_factory=dict)
    """What of its own folder it takes into that of the replica: files below which folder there."""
    organization: str = ""
    """Whose replicas it becomes; "" = anybody's, as all of them trust each other."""


@dataclass(frozen=True)
class Command:
    """How to start a replica's process.

    The engine adds to `env`: `HOTPLATE_LISTEN_FD` (a listening socket to serve HTTP on),
    `HOTPLATE_REPLICA_DIR` (the replica's own directory), `CUDA_VISIBLE_DEVICES` (its GPUs, "" for
    none) and `CUDA_DEVICE_ORDER`.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    job: Mapping[str, Any]
    """What the process reads from its standard input: one JSON document, then the end."""
    ready_path: str = "/readyz"
    """Where `GET` answers 200 when the replica may have requests."""
    reads: tuple[str, ...] = ()
    """Files and folders that it needs, of those that an engine may hide."""
    writes: tuple[str, ...] = ()
    """The same, for writing too. Its own directory is always among them."""
    layers: tuple[str, ...] = ()
    """Folders that it reads, and where what it writes is seen by itself alone: the engine has that
    lie in its own directory. Those of its standby are the same."""
    warm: Warm | None = None
    """The standby that may become this replica; None if none can."""


class Recorder(Protocol):
    """Notes the phases of one cold start: the runtime's are environment and weights."""

    def begin(self, phase: str) -> None: ...

    def end(self, phase: str) -> None: ...

    def building(self, log: str) -> None:
        """Its environment is being built, with its output in the file `log`; "" = no longer."""


class Runtime(Protocol):
    """What BentoML (or another framework) needs to become a process on this node."""

    async def prepare(
        self, workload: Workload, replica: str, directory: str, recorder: Recorder
    ) -> Command:
        """Make environment, files and weights available (side by side) and say what to start.

        `directory` is the replica's own, empty. Weights may still be arriving when this returns.
        Raises `PrepareFailed` (with `retry` False if trying again cannot help).
        """

    async def keep(self, directory: str, *, ended: bool) -> None:
        """Keep what the process there has made and those after it can use.

        Called while it serves, and when it has `ended`, before the directory goes.
        """

    async def phases(self, directory: str) -> Sequence[Phase]:
        """The phases that the process itself has noted in its directory so far."""

    async def told(self, directory: str) -> Mapping[str, Any] | None:
        """What else it has said of itself there; None if nothing."""
