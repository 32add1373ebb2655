"""What the controller remembers of one deployment between two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.planning.addresses import Addresses
from hotplate.platform.controller.planning.gateway_reports import GatewayReports
from hotplate.platform.controller.planning.plan import ended_attempts
from hotplate.platform.controller.planning.routing import public_name, routes_of, version_of
from hotplate.platform.controller.planning.slot_counts import SlotCounts
from hotplate.platform.controller.planning.turnovers import sharing
from hotplate.platform.controller.planning.workloads import Service
from hotplate.platform.controller.rollouts.comparison import AnswerWindow, Counted
from hotplate.platform.controller.rollouts.strategies import Shift
from hotplate.platform.controller.scaling.deciders import Recommendation
from hotplate.platform.controller.scaling.demand_log import DemandLog
from hotplate.platform.spec.label_settings import LabelSettings
from hotplate.platform.store.learnt import of_deciders
from hotplate.platform.store.records import (
    Deployment,
    DesiredState,
    Revision,
)
from hotplate.serving.gateway.protocol.routes import Route, RouteDemand
from hotplate.serving.replica.variables import NO_TIMEOUT_S

UNSETTLED = ("deploying", "terminating")
"""Statuses after which another one follows by itself."""

DRAIN_MARGIN_S = 10.0
"""Beyond the timeout of its requests, for a draining replica to finish them."""
STREAMS_S = 600.0
"""What a replica that is replaced or scaled away has at least: an answer that has begun, or a
WebSocket, may last. Deleting or terminating a deployment does not wait for those."""
TASKS_S = float(NO_TIMEOUT_S)
"""The same of one that is scaled away while a kept task runs on it: as long as a handler may take,
24 h, for nobody has asked to end it. A replaced one has what its deployment says (`task_drain_s`).
"""
CODE_DRAIN_S = 1.0
"""What a code space's replica has: whoever has saved a file waits for the new one's start."""

SEEN = 3
"""How many replicas' logs a deployment without any shows."""


class NewlyReady(NamedTuple):
    """Replicas that are ready, by what is new about their cold starts."""

    fresh: Sequence[Replica]
    """It has ended."""
    told: Sequence[Replica]
    """They have said themselves how they started."""
    timed: Sequence[Replica]
    """The length of its phases is known."""


@dataclass
class DeploymentState:
    """All of it can be rebuilt from the store, the engine and the gateway."""

    deployment: Deployment
    services: dict[int, tuple[Service, ...]] = field(default_factory=dict)
    """Per revision number, also of revisions that are on their way out."""
    numbers: frozenset[int] = frozenset()
    """All its revisions; a deployment that took over a deleted one's name has others."""
    """What it takes of its callers where it is protected."""
    calls: frozenset[str] = frozenset()
    """Names of the deployments that bentos of its revisions name."""
    uncallable: str = ""
    """Which of these cannot be called, and why, as of the last load."""
    portless: Mapping[int, str] = field(default_factory=dict)
    """Revisions whose services have no ports to call each other by, and why, as of the last load:
    none of their replicas starts."""
    draining: frozenset[str] = frozenset()
    drained_since: dict[str, float] = field(default_factory=dict)
    """When each of these began to, loop seconds."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    """Kept tasks that run on each of these."""
    recommended: dict[WorkloadKey, Recommendation] = field(default_factory=dict)
    """The last decision per service that answers."""
    demands: DemandLog = field(default_factory=DemandLog)
    """The demand that their deciders saw."""
    rewritten: frozenset[str] = frozenset()
    """Queries whose rewriting is on record."""
    query_problem: str = ""
    """What is wrong with an answer to them, as the last event says."""
    short: frozenset[WorkloadKey] = frozenset()
    """Those that get fewer replicas than they want."""
    learnt_at: dict[WorkloadKey, float] = field(default_factory=dict)
    """When what each decider has learnt was written last, loop seconds."""
    memories: dict[str, Any] = field(default_factory=dict)
    """What deciders of the deployment's services had learnt, as of the last load."""
    begun: Mapping[str, float] = field(default_factory=dict)
    """When each replica was asked for, loop seconds, as far as it could be told when it was first
    seen."""
    ended: dict[str, int] | None = None
    """How often each replica has ended by itself; None before the first look."""
    unready: set[str] = field(default_factory=set)
    """Replicas whose readiness checks fail."""
    started: dict[tuple[str, float], bool] = field(default_factory=dict)
    """(replica, ready since) whose cold start is on record, and whether its phases are known."""
    told: set[tuple[str, float]] = field(default_factory=set)
    """The same of those that have said themselves how they started."""
    slots: SlotCounts = field(default_factory=SlotCounts)
    seen: tuple[str, ...] = ()
    """The last replicas, so that their logs are found when they have ended."""
    traffic: GatewayReports = field(default_factory=GatewayReports)
    """What gateways say of its replicas, and of what they refused."""
    answers: AnswerWindow = field(default_factory=AnswerWindow)
    """Those of two revisions while both serve."""
    answers_of: int = 0
    """The new one of these revisions."""
    beside_main: AnswerWindow = field(default_factory=AnswerWindow)
    """Where it is a version of a canary, its answers and those of `main`."""
    beside_main_of: tuple[str, str] = ("", "")
    """The revisions of both."""
    shift: Shift | None = None
    """How its roll-out stood at the last step; None where none is under way."""
    targets: Mapping[WorkloadKey, int] = field(default_factory=dict)
    """How many replicas each workload is to have, as of the last step."""
    pending_reason: str = ""
    build_logs: frozenset[str] = frozenset()
    """Of the builds that are on record."""
    routes: Sequence[Route] = ()
    """What gateways are to serve for it."""
    next_at: float | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the outcome of the last create, update or terminate is known."""

    def kept(self) -> list[Revision]:
        """The revisions that may have replicas wanted: the latest, and the one that serves."""
        latest, serving = self.deployment.latest, self.deployment.serving
        return [latest] if serving is None or serving.number == latest.number else [latest, serving]

    def drain(self, replicas: frozenset[str], now: float) -> None:
        """These are to finish what they have."""
        self.draining = replicas
        self.drained_since = {name: self.drained_since.get(name, now) for name in replicas}

    def drains_known(self) -> frozenset[str]:
        """What drains, and stands in the routes as such. Until the routes have been made anew, no
        gateway can have heard of the others, whatever it has confirmed."""
        replicas = (replica for route in self.routes for replica in route.replicas)
        return self.draining - {replica.id for replica in replicas if not replica.draining}

    def patience_s(self, replica: Replica) -> float:
        """How long a replica may finish what it has."""
        if self.deployment.dev:
            return CODE_DRAIN_S
        service = self.find(replica.key)
        timeout_s = service.timeout_s if service else 0.0
        if self.deployment.wanted is DesiredState.RUNNING:
            timeout_s = max(timeout_s, STREAMS_S)
            if self.tasks.get(replica.id):
                timeout_s = max(timeout_s, self._tasks_s(replica))
        return timeout_s + DRAIN_MARGIN_S

    def _tasks_s(self, replica: Replica) -> float:
        serving = self.deployment.serving
        if serving is not None and replica.key.revision == serving.number:
            return TASKS_S
        return LabelSettings.of(self.deployment.labels).task_drain_s

    def overdue(self, replicas: Iterable[Replica], now: float) -> frozenset[str]:
        """Draining replicas that have had their time; `next_at` is when the next one will have."""
        ends = {
            replica.id: self.drained_since[replica.id] + self.patience_s(replica)
            for replica in replicas
            if replica.id in self.drained_since
        }
        self.look_by(min((end for end in ends.values() if end > now), default=None))
        return frozenset(name for name, end in ends.items() if end <= now)

    def look_by(self, at: float | None) -> None:
        """The next step is to be then, or before; None = it does not matter when."""
        self.next_at = min((each for each in (at, self.next_at) if each is not None), default=None)

    def outlived(self, replicas: Iterable[Replica]) -> bool:
        """Whether something is known here of a revision that nothing is left of."""
        kept = {revision.number for revision in self.kept()}
        past = self.services.keys() - kept
        return bool(past) and not past <= {r.key.revision for r in self.mine(replicas)}

    def follow_slots(
        self, replicas: Sequence[Replica], demands: Iterable[RouteDemand]
    ) -> list[str]:
        """Follows what replicas and gateways say of slots; a sentence for each that is news."""
        label = LabelSettings.of(self.deployment.labels).concurrency
        for service in self.answering():
            self.slots.restore(service, self.memories.get(service.name))
        services = [service for members in self.services.values() for service in members]
        return self.slots.update(services, replicas, demands, label)

    def follow_answers(self, counted: Counted) -> None:
        """Follows how the two revisions of a roll-out answer, as gateways have counted."""
        pair = sharing(self.deployment)
        if pair is None:
            return
        new, old = pair
        if self.answers_of != new:
            self.answers, self.answers_of = AnswerWindow(), new
        name = public_name(self.deployment)
        serve = {
            replica.version
            for route in self.routes
            if route.name == name
            for replica in route.replicas
            if not replica.draining
        }
        versions = version_of(self.deployment, new), version_of(self.deployment, old)
        self.answers.look(counted, *versions, both=serve.issuperset(versions))

    def keep_only(self, numbers: Collection[int]) -> None:
        """Forget what is known of other revisions: every roll-out makes one more."""
        self.services = {n: s for n, s in self.services.items() if n in numbers}
        self.learnt_at = {k: t for k, t in self.learnt_at.items() if k.revision in numbers}
        self.slots.forget(numbers)

    def find(self, key: WorkloadKey) -> Service | None:
        """The service of a workload; None where no revision that is known has it."""
        return next((s for s in self.services.get(key.revision, ()) if s.workload.key == key), None)

    def answering(self) -> list[Service]:
        """The services whose number of replicas is the autoscaler's to decide."""
        revision = self.deployment.serving
        if revision is None or self.deployment.wanted is not DesiredState.RUNNING:
            return []
        if revision.number in self.portless:
            return []
        return list(self.services[revision.number])

    @property
    def memory_prefix(self) -> str:
        """Where the store keeps what the deployment's deciders have learnt."""
        return of_deciders(self.deployment.uid)

    def memory_key(self, service: str) -> str:
        """The same of one service."""
        return self.memory_prefix + service

    def route_of(self, key: WorkloadKey) -> str:
        """The gateway's name for the requests that a workload answers."""
        service = self.find(key)
        entry = service is not None and service.workload.entry
        return public_name(self.deployment) if entry else str(key)

    def route(self, replicas: Iterable[Replica], addresses: Addresses) -> None:
        """Bring `routes` up to date with the replicas there are."""
        self.routes = routes_of(
            self.deployment,
            self.services,
            self.mine(replicas),
            self.draining,
            addresses,
            self.slots,
        )

    def owns(self, key: WorkloadKey) -> bool:
        """Whether a workload is of one of this deployment's revisions."""
        return (
            key.deployment == self.deployment.name
            and key.organization == self.deployment.organization.name
            and key.revision in self.numbers
        )

    def mine(self, replicas: Iterable[Replica]) -> list[Replica]:
        """The deployment's own replicas, of all that there are."""
        return [replica for replica in replicas if self.owns(replica.key)]

    def note_begun(self, replicas: Iterable[Replica], now: float, wall: float) -> None:
        """Fix when these began by the clock that nobody sets; others are forgotten.

        `now` is in loop seconds, `wall` in Unix seconds. The wall clock is right, or nearly, when a
        replica is new, and may be set by hours while it starts. One that would begin in the future
        begins now: the clock was set back while nobody looked.
        """
        self.begun = {
            replica.id: self.begun.get(replica.id, now - max(0.0, wall - replica.created_at))
            for replica in replicas
        }

    def see(self, replicas: Sequence[Replica]) -> None:
        """Remember these replicas' ids, so that their logs are found when they have ended; what
        was never made has none."""
        ids = [replica.id for replica in replicas if replica.uid]
        self.seen = tuple(dict.fromkeys([*self.seen, *ids]))[-max(SEEN, len(ids)) :]

    def crashed(self, replicas: Sequence[Replica]) -> list[Replica]:
        """Replicas that have ended by themselves since the last call.

        Those that had been started again before the first call were told of by an earlier self.
        """
        known = self.ended
        if known is None:
            known = {replica.id: replica.restarts for replica in replicas}
        self.ended = ended = {replica.id: ended_attempts(replica) for replica in replicas}
        return [r for r in replicas if ended[r.id] > known.get(r.id, 0)]

    def newly_unready(self, replicas: Sequence[Replica]) -> list[Replica]:
        """Replicas whose readiness checks fail since the last call."""
        found = [r for r in replicas if r.state is ReplicaState.UNREADY]
        fresh = [replica for replica in found if replica.id not in self.unready]
        self.unready |= {replica.id for replica in found}
        return fresh

    def ready_again(self, replicas: Sequence[Replica]) -> list[Replica]:
        """Those of them that are well since then; others are forgotten once they have ended."""
        back = [r for r in replicas if r.id in self.unready and r.state is ReplicaState.READY]
        self.unready = {r.id for r in replicas if r.state is ReplicaState.UNREADY}
        return back

    def newly_ready(self, replicas: Sequence[Replica]) -> NewlyReady:
        """Whose cold start has ended since the last call, and of whose more is known since then."""
        ready = {(r.id, r.ready_at): r for r in replicas if r.ready_at is not None}
        telling = {at: r for at, r in ready.items() if r.self_report is not None}
        told = [r for at, r in telling.items() if at in self.started and at not in self.told]
        fresh = [replica for at, replica in ready.items() if at not in self.started]
        timed = [r for at, r in ready.items() if r.phases_known and not self.started.get(at)]
        self.told = set(telling)
        self.started = {at: replica.phases_known for at, replica in ready.items()}
        return NewlyReady(fresh, told, timed)
