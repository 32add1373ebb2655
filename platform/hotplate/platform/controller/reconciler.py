"""One step for one deployment: gather what is wanted, there and asked for, decide, plan, apply.

A step looks at all of the deployment, so whatever was missed or cut off before is made good.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from hotplate.autoscaler.rules.schedule import Floor, Schedule
from hotplate.autoscaler.sharing.allocation import Grant
from hotplate.deploy.engine import Engine, Replica
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.deployment_state import UNSETTLED, DeploymentState
from hotplate.platform.controller.event_recorder import EventRecorder
from hotplate.platform.controller.gateways.route_links import RouteLinks
from hotplate.platform.controller.loading import Loader
from hotplate.platform.controller.metrics import ControllerMetrics
from hotplate.platform.controller.planning.messages import failed
from hotplate.platform.controller.planning.observed import Observed, Verdict
from hotplate.platform.controller.planning.plan import NextStep, plan
from hotplate.platform.controller.planning.routing import Addresses, public_name, routes_of
from hotplate.platform.controller.planning.workloads import Rules, Service
from hotplate.platform.controller.resource_requests import asks
from hotplate.platform.controller.scaling.allocations import Allocations
from hotplate.platform.controller.scaling.deciders import Scaling, Wish, counts
from hotplate.platform.controller.scaling.query_watch import QueryWatch
from hotplate.platform.spec.annotations import binary_of
from hotplate.platform.spec.label_settings import LabelSettings
from hotplate.platform.store.records import Deployment, RolloutOutcome
from hotplate.platform.store.store import Store
from hotplate.serving.gateway.protocol.routes import TASKS

DAY_S = 86_400.0
"""Nothing that is known now is waited for longer than this at once."""

log = logging.getLogger("hotplate.controller")


class Reconciler:
    """Remembers every deployment that is looked after; the controller says whose turn it is."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        gateways: RouteLinks,
        rules: Rules,
        addresses: Addresses,
        metrics: ControllerMetrics,
        queries: QueryWatch,
    ) -> None:
        self._store = store
        self._engine = engine
        self._gateways = gateways
        self._addresses = addresses
        self._metrics = metrics
        self.queries = queries
        self._loader = Loader(store, rules)
        self._stale: set[int] = set()
        self._unread: set[int] = set()
        """Those heard of whose services are not known yet."""
        self.tracked: dict[int, DeploymentState] = {}
        self.scaling = Scaling()
        self.allocations = Allocations()
        self._recorder = EventRecorder(store, self.scaling, metrics)

    def heard_of(self, deployment_id: int) -> None:
        """There is such a deployment, and a step for it will follow."""
        if deployment_id not in self.tracked:
            self._unread.add(deployment_id)

    def reread(self, deployment_id: int) -> None:
        """The store has changed for it: the next step reads it again."""
        self._stale.add(deployment_id)

    def manifests(self) -> frozenset[str] | None:
        """Manifests of all files that replicas use or would use; None while not all are known."""
        if self._unread:
            return None
        return frozenset(
            manifest
            for tracked in self.tracked.values()
            for services in tracked.services.values()
            for service in services
            for manifest in service.workload.manifests
        )

    async def step(self, deployment_id: int) -> None:
        """Look at all of it and bring it one step nearer to what is wanted.

        Raises what the store or the engine raises; nothing is lost then, the step is repeated.
        """
        tracked = self.tracked.get(deployment_id)
        outlived = tracked is not None and tracked.outlived(self._engine.replicas())
        expired = tracked is not None and _token_ends_s(tracked) <= 0.0
        if tracked is None or outlived or expired or deployment_id in self._stale:
            self._stale.discard(deployment_id)
            tracked = await self.load(deployment_id)
        if tracked is None:
            return
        replicas = tracked.mine(self._engine.replicas())
        tracked.next_at = None
        await self._recorder.noticed(tracked, replicas)
        now = asyncio.get_running_loop().time()
        ends_s = _token_ends_s(tracked)
        tracked.look_by(None if ends_s == math.inf else now + min(ends_s, DAY_S))
        await self._hear(tracked, replicas, now)
        if (binary := binary_of(tracked.deployment.labels)) is not None:
            readings = self.queries.follow(deployment_id, binary)
            await self._recorder.asked(tracked, binary, readings)
        self._count_tasks(tracked)
        overdue = tracked.overdue(replicas, now)
        await self._recorder.cut(tracked, overdue)
        # A grant holds for the instant that it was made from, because the engine makes and stops
        # replicas meanwhile: between the two nothing is awaited, what happened is written later.
        wishes, granted, step = self._decide(tracked, overdue)
        for scale in step.scales:
            if service := tracked.find(scale.key):
                self.allocations.told(service.workload, scale.count)
                await self._engine.scale(service.workload, scale.count, remove=scale.remove)
        await self._recorder.granted(tracked, granted)
        await self._recorder.decided(tracked, wishes, now)
        await self._conclude(tracked, step)

    def foresee(self, deployment_ids: Iterable[int]) -> bool:
        """Have what is scarce shared once among all that have their turn now, as far as it is
        known here what they will ask for: else each step with another wish would share it anew.
        Whether anything is scarce."""
        if not self.allocations.scarce:
            return False
        for deployment_id in deployment_ids:
            tracked = self.tracked.get(deployment_id)
            if tracked is not None and deployment_id not in self._stale:
                with suppress(Exception):  # its step has the same trouble, and tells of it
                    wishes, observed = self._wish(tracked, frozenset())
                    self.allocations.state(deployment_id, asks(tracked, observed, wishes))
        self.allocations.share()
        return True

    def _decide(
        self, tracked: DeploymentState, overdue: frozenset[str]
    ) -> tuple[list[Wish], Mapping[WorkloadKey, Grant], NextStep]:
        """What is wished for, what of it is granted, and what to do now."""
        wishes, observed = self._wish(tracked, overdue)
        granted = self.allocations.grant(
            tracked.deployment.id, asks(tracked, observed, wishes), self._engine.replicas()
        )
        wishes = [replace(wish, grant=granted.get(wish.key)) for wish in wishes]
        step = plan(replace(observed, granted=granted))
        tracked.drain(step.draining, asyncio.get_running_loop().time())
        self._count_tasks(tracked)
        return wishes, granted, step

    def _wish(
        self, tracked: DeploymentState, overdue: frozenset[str]
    ) -> tuple[list[Wish], Observed]:
        """What is wished for, and how the deployment stands."""
        now, wall = asyncio.get_running_loop().time(), datetime.now(UTC).timestamp()
        replicas = tracked.mine(self._engine.replicas())
        wishes: list[Wish] = []
        settings = LabelSettings.of(tracked.deployment.labels)
        floor = self._floor(settings, now)
        for service in tracked.answering():
            key = service.workload.key
            own = [replica for replica in replicas if replica.key == key]
            there = counts(own, tracked.draining, now, wall)
            route = tracked.route_of(key)
            slots, demand = tracked.slots.load(
                service, self._gateways.demand(route), self._gateways.demand(route + TASKS)
            )
            memory = tracked.memories.get(service.name)
            tracked.demands.note(key, demand, there, wall)
            wish = self.scaling.wish(
                service, slots, demand, there, now, memory, floor, settings.price
            )
            wish = replace(wish, slots=tracked.slots.of(service).told())
            wishes.append(self._switched(tracked, service, wish, own, now))
            tracked.look_by(wishes[-1].decision.next_at)
        return wishes, Observed(
            deployment=tracked.deployment,
            services=tracked.services,
            desired={wish.key: wish.decision.desired for wish in wishes},
            replicas=replicas,
            draining=tracked.draining,
            idle=overdue | {r for r in tracked.draining if self._gateways.idle(r)},
            busy={r.id: n for r in replicas if (n := self._gateways.busy(r.id))},
            now=wall,
            told=frozenset(filter(tracked.owns, self.allocations.ordered())),
            unserved=tracked.traffic.unserved.get(public_name(tracked.deployment), ""),
        )

    def _count_tasks(self, tracked: DeploymentState) -> None:
        """On what drains: it has longer to end while one runs."""
        tracked.tasks = {r: n for r in tracked.draining if (n := self._gateways.tasks(r))}

    @staticmethod
    def _floor(settings: LabelSettings, now: float) -> tuple[Floor, float] | None:
        """What the deployment's schedule asks for, until when in loop seconds."""
        if not settings.schedule:
            return None
        wall = datetime.now(UTC)
        floor = Schedule(settings.schedule, ZoneInfo(settings.time_zone)).floor(wall)
        until = math.inf
        if floor.until is not None:
            until = now + (floor.until - wall).total_seconds()
        return floor, until

    def _switched(
        self,
        tracked: DeploymentState,
        service: Service,
        wish: Wish,
        own: Sequence[Replica],
        now: float,
    ) -> Wish:
        """The wish of an entry service whose deployment has queries decide."""
        deployment = tracked.deployment
        binary = binary_of(deployment.labels)
        if not service.workload.entry:
            return wish
        readings = self.queries.follow(deployment.id, binary)
        if binary is None:
            self.scaling.unswitch(deployment.id)
            return wish
        # While no gateway says what runs where, a job may run on each.
        known = self._gateways.connected
        busy = sum(not known or self._gateways.busy(replica.id) > 0 for replica in own)
        memory = tracked.memories.get(service.name) or {}
        wall = datetime.now(UTC).timestamp()
        return self.scaling.switch(deployment.id, binary, readings, busy, wish, now, memory, wall)

    async def _hear(
        self, tracked: DeploymentState, replicas: Sequence[Replica], now: float
    ) -> None:
        """While a route has no owner, nobody can say who is out."""
        counts = {r.id: n for r in replicas if (n := self._gateways.abandoned(r.id))}
        tracked.traffic.abandoned = counts
        demands = {route.name: self._gateways.demand(route.name) for route in tracked.routes}
        known = {name: demand for name, demand in demands.items() if demand is not None}
        news = tracked.hear_of_slots(replicas, known.values())
        await self._recorder.counted(tracked, news)
        if len(known) == len(demands):
            await self._recorder.heard(tracked, known, replicas, now)

    async def _conclude(self, tracked: DeploymentState, step: NextStep) -> None:
        deployment = tracked.deployment
        if step.verdict is not None:
            await self._rule(deployment, step.verdict)
        if step.status == "terminated" and deployment.serving is not None:
            await self._store.run(self._store.deployments.stop_serving, deployment.id)
            self._stale.add(deployment.id)
        if (step.status, step.reason) != (deployment.status, deployment.reason):
            await self._store.run(
                self._store.deployments.set_status, deployment.id, step.status, step.reason
            )
            self._stale.add(deployment.id)
        if step.status not in UNSETTLED and deployment.id not in self._stale:
            tracked.settled.set()
        if step.gone:
            await self._forget(tracked)
        elif deployment.id in self._stale:
            await self.step(deployment.id)

    async def _forget(self, tracked: DeploymentState) -> None:
        """Nothing is left of a deleted deployment, so nothing is kept of it either."""
        deployment = tracked.deployment
        await self._store.run(self._store.learnt.forget, tracked.memory_prefix)
        await self._store.run(self._store.deployments.forget, deployment.id)
        self.tracked.pop(deployment.id)
        self.scaling.forget(tracked.owns)
        self.scaling.unswitch(deployment.id)
        name = public_name(deployment)
        if all(public_name(other.deployment) != name for other in self.tracked.values()):
            self._metrics.forget(name)
        tracked.settled.set()
        self.queries.follow(deployment.id, None)
        self._stale.discard(deployment.id)

    async def _rule(self, deployment: Deployment, verdict: Verdict) -> None:
        latest = deployment.latest
        event = f"revision {latest.number}: {verdict.reason}"
        if verdict.outcome is RolloutOutcome.FAILED:
            event = failed(deployment, verdict.reason)
        await self._store.run(
            self._store.deployments.conclude_rollout,
            latest.id,
            verdict.outcome,
            verdict.reason,
            event,
            verdict.log_tail,
        )
        log.info("%s: %s", deployment.name, event)
        self._stale.add(deployment.id)

    async def load(self, deployment_id: int) -> DeploymentState | None:
        """Read it from the store; None when it is gone."""
        known = self.tracked.get(deployment_id)
        running = {replica.key for replica in self._engine.replicas()} | self.allocations.ordered()
        tracked = await self._store.run(self._loader.load, deployment_id, running, known)
        self._unread.discard(deployment_id)
        if tracked is None:
            self.tracked.pop(deployment_id, None)
        else:
            self.tracked[deployment_id] = tracked
            self.scaling.forget(lambda key: tracked.owns(key) and tracked.find(key) is None)
        return tracked

    def route(self, deployment_id: int) -> None:
        """Bring the deployment's routes up to date, also after a step that could write nothing."""
        if tracked := self.tracked.get(deployment_id):
            tracked.routes = routes_of(
                tracked.deployment,
                tracked.services,
                tracked.mine(self._engine.replicas()),
                tracked.draining,
                tracked.tokens.digests,
                self._addresses,
                tracked.slots,
            )


def _token_ends_s(tracked: DeploymentState) -> float:
    """How long its callers' tokens are as they are; infinite where none expires."""
    until = tracked.tokens.until
    return math.inf if until is None else (until - datetime.now(UTC)).total_seconds()
