"""A controller on one thread: wherever it waits for the store, the world goes on as told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from random import Random
from typing import ParamSpec, TypeVar

from prometheus_client import CollectorRegistry

from hotplate.autoscaler.sharing.amounts import NOTHING
from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local.plan import Member, make_plan
from hotplate.deploy.workload import Resources, Workload, WorkloadKey
from hotplate.platform.controller.deployment_states import DeploymentStates
from hotplate.platform.controller.event_recorder import EventRecorder
from hotplate.platform.controller.metrics import ControllerMetrics
from hotplate.platform.controller.reconciler import Reconciler
from hotplate.platform.controller.rollouts.comparison import Counted
from hotplate.platform.controller.scaling.prometheus import Prometheus
from hotplate.platform.controller.scaling.query_watch import QueryWatch
from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.records import DesiredState, Kind
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.controller_world import MANIFEST, RULES, config
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickStore

P = ParamSpec("P")
T = TypeVar("T")

NODE = Resources(8, 1 << 40)


class LateEngine(FakeEngine):
    """Notes what is wished for and carries it out when `step` is called, as the real one does in a
    task of its own; what it stops is there until it is buried."""

    def __init__(self, most: int, survivors: FakeEngine | None = None) -> None:
        super().__init__(survivors=survivors)
        self._most = most
        self._wished: dict[WorkloadKey, tuple[Workload, int]] = {}
        self.exceeded = 0

    async def scale(self, workload: Workload, count: int, *, remove: Collection[str] = ()) -> None:
        for name in remove:
            if name in self.found:
                self.become(name, ReplicaState.STOPPING)
        self._wished[workload.key] = workload, count

    def step(self) -> None:
        wishes = {key: count for key, (_, count) in self._wished.items()}
        members = [Member(r.id, r.key, r.state, r.created_at) for r in self.found.values()]
        plan = make_plan(wishes, members, expected=None)
        for name in plan.stop:
            self.become(name, ReplicaState.STOPPING)
        for key, count in plan.create.items():
            for _ in range(count):
                self._add(self._wished[key][0])
                self.exceeded += len(self.found) > self._most

    def wished(self) -> dict[str, int]:
        return {key.deployment: count for key, (_, count) in self._wished.items()}


class SaidByHand:
    """What gateways would say."""

    connected = True

    def __init__(self) -> None:
        self.queued: dict[str, int] = {}
        self.drained: set[str] = set()

    def demand(self, route: str) -> RouteDemand:
        return RouteDemand(queued=self.queued.get(route, 0), service_s=60)

    def idle(self, replica: str) -> bool:
        return replica in self.drained

    def busy(self, replica: str) -> int:
        return 0

    def tasks(self, replica: str) -> int:
        return 0

    def abandoned(self, replica: str) -> int:
        return 0

    def answers(self, route: str) -> Counted:
        return {}


class BusyStore(QuickStore):
    """While somebody waits for it, something happens."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.meanwhile()
        answer = call(*args, **kwargs)
        self.meanwhile()
        return answer


class Quarters:
    """An organization with a quota, and what looks after its deployments."""

    def __init__(self, store: BusyStore, most: int) -> None:
        self.store, self.most = store, most
        self.user = store.identities.ensure_user("acme", "ann", "ann@localhost")
        store.quotas.set("acme", {"replicas": most})
        self.ids: dict[str, int] = {}
        self.engine = LateEngine(most)
        self.begin()

    def begin(self) -> None:
        """Another control plane takes over what runs, and knows no wishes."""
        exceeded = self.engine.exceeded
        self.engine = LateEngine(self.most, self.engine)
        self.engine.exceeded = exceeded
        self.gateways = SaidByHand()
        metrics = ControllerMetrics(CollectorRegistry())
        watch = QueryWatch(Prometheus(""), lambda deployment_id: None)
        self.states = DeploymentStates()
        self.recorder = EventRecorder(self.store, self.states.scaling, metrics)
        self.reconciler = Reconciler(
            self.store, self.engine, self.states, self.gateways, watch, self.recorder, RULES
        )
        self.states.allocations.limit(self.store.quotas.all(), NODE)

    def bento(self, version: str) -> int:
        organization = self.user.organization.id
        self.store.artifacts.ensure_repository(organization, Kind.BENTO, "echo")
        draft = ArtifactDraft(version=version, manifest=MANIFEST)
        made = self.store.artifacts.create(organization, Kind.BENTO, "echo", draft)
        return self.store.uploads.finish(made.id, "f" * 64, 1).id

    def deploy(self, name: str, bento: int) -> None:
        made = self.store.deployments.create(
            self.user, name, RevisionDraft(bento, config(0, 3), least=NOTHING)
        )
        self.ids[name] = made.id

    async def step(self, name: str, queued: int | None = None) -> None:
        if queued is not None:
            self.gateways.queued[f"acme/{name}"] = queued
        await self.reconciler.step(self.ids[name])
        await self.recorder.flush()

    def replica_states(self) -> list[str]:
        return sorted(replica.state.value for replica in self.engine.found.values())


class Weather:
    """Everything that may happen at any moment, by chance."""

    def __init__(self, quarters: Quarters, rng: Random) -> None:
        self._quarters, self._rng = quarters, rng

    def blow(self) -> None:
        if self._rng.random() < 0.01:
            raise StoreFailed("its disk is full")
        while self._rng.random() < 0.6:
            self.happen()

    def happen(self) -> None:
        rng, engine, gateways = self._rng, self._quarters.engine, self._quarters.gateways
        match rng.choice(("engine", "replica", "gateway", "demand")):
            case "engine":
                engine.step()
            case "replica" if engine.found:
                self._turn(rng.choice(list(engine.found)))
            case "gateway":
                gateways.drained = {name for name in engine.found if rng.random() < 0.8}
            case "demand" if self._quarters.ids:
                name = rng.choice(list(self._quarters.ids))
                gateways.queued[f"acme/{name}"] = rng.randrange(4)

    def _turn(self, replica: str) -> None:
        engine = self._quarters.engine
        state = engine.found[replica].state
        if state is ReplicaState.STOPPING:
            del engine.found[replica]
        elif state is not ReplicaState.READY:
            engine.become(replica, ReplicaState.READY)
        elif self._rng.random() < 0.1:
            restarts = engine.found[replica].restarts + 1
            engine.become(replica, ReplicaState.BACKOFF, "exit 1", restarts)

    def order(self, number: int) -> None:
        """Somebody deploys, updates, terminates, deletes; or the control plane starts again."""
        rng, quarters = self._rng, self._quarters
        store, ids = quarters.store, quarters.ids
        if len(ids) < 3:
            quarters.deploy(f"d{number}", quarters.bento(f"v{number}"))
            return
        deployment_id = ids[rng.choice(list(ids))]
        deployment = store.deployments.get(deployment_id)
        match rng.choice(("update", "update", "end", "restart")):
            case "restart":
                quarters.begin()
            case "update" if deployment and deployment.wanted is DesiredState.RUNNING:
                bento = quarters.bento(f"v{number}")
                least = rng.randrange(2)
                store.deployments.update(
                    deployment_id, RevisionDraft(bento, config(least, 3)), labels=None
                )
            case "end" if deployment and deployment.wanted is not DesiredState.DELETED:
                end = rng.choice((store.deployments.terminate, store.deployments.delete))
                end(deployment_id)
        quarters.states.mark_stale(deployment_id)


async def walk(store: BusyStore, rng: Random, steps: int) -> tuple[int, int]:
    """How often a quota was exceeded, and after how many steps all of it was used."""
    quarters = Quarters(store, 4)
    weather = Weather(quarters, rng)
    full = 0
    for number in range(steps):
        store.meanwhile = lambda: None
        if number < 3 or rng.random() < 0.1:
            weather.order(number)
        store.meanwhile = weather.blow
        name = rng.choice(list(quarters.ids))
        with suppress(StoreFailed):
            await quarters.step(name)
            if store.deployments.get(quarters.ids[name]) is None:
                del quarters.ids[name]
        full += len(quarters.engine.found) == quarters.most
    return quarters.engine.exceeded, full
