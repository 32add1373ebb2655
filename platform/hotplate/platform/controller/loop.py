"""The loop that makes reality follow the store: when to look at which deployment.

Level-triggered, as controllers of Kubernetes are: every step looks at all of one deployment, so a
missed event or a restart in the middle of anything costs time and nothing else. What is known of
the deployments is in `deployment_states`; all of it can be rebuilt from the store, the engine and
the gateways.

A deployment has its turn when the API pokes it, a replica of it changes, a gateway reports other
demand, a query is answered, or a moment comes that its last step named (`next_at`). Its step
(`reconciler`) then:

    reads it from the store, if that has changed                 loading
    records what happened to its replicas and requests           event_recorder
    asks its deciders how many replicas each service needs       recommender
    asks what of that it may have beside the others              scaling/allocations
    plans: scale, drain, conclude the roll-out, set the status   planning/plan
    tells the engine, records the decisions and the status

After each round the engine is told which workloads may have replicas at all, the routes of all
deployments go to the gateways (`gateways/route_links`), and what was recorded to the store
(`pending_writes`): in one transaction, for which no round waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hotplate.autoscaler.sharing.amounts import Amounts
from hotplate.deploy.engine import Engine, Replica
from hotplate.deploy.workload import Resources
from hotplate.machine.descriptors import are_short
from hotplate.platform.controller.deployment_states import DeploymentStates
from hotplate.platform.controller.event_recorder import EventRecorder
from hotplate.platform.controller.gateways.endpoint_tokens import EndpointTokens
from hotplate.platform.controller.gateways.route_links import RouteLinks
from hotplate.platform.controller.interface import (
    NO_SUBSCRIBERS,
    UNSEEN,
    Rollout,
    Subscribers,
)
from hotplate.platform.controller.metrics import ControllerMetrics
from hotplate.platform.controller.planning.addresses import Addresses
from hotplate.platform.controller.planning.canary_routes import with_canaries
from hotplate.platform.controller.planning.instance_types import instance_types
from hotplate.platform.controller.planning.routing import public_name
from hotplate.platform.controller.planning.workloads import WorkloadRules, least_amounts, notes
from hotplate.platform.controller.reconciler import RETRY_S, Reconciler
from hotplate.platform.controller.replica_callers import ReplicaCallers
from hotplate.platform.controller.replica_logs import ReplicaLogs
from hotplate.platform.controller.rollout import rollout_json, rollout_of, weigh
from hotplate.platform.controller.scaling.allocations import usage
from hotplate.platform.controller.scaling.prometheus import Prometheus
from hotplate.platform.controller.scaling.query_watch import QueryWatch
from hotplate.platform.controller.series_view import SeriesView
from hotplate.platform.controller.status_json import live_json
from hotplate.platform.errors import Alone, StoreFailed
from hotplate.platform.live.change_feed import ChangeFeed
from hotplate.platform.series.recorder import SeriesRecorder, UsageSource, nothing_known
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import DemandRecord

log = logging.getLogger("hotplate.controller")

UNREAD_TRIES = 5
"""Failed steps after a start until the others' routes are no longer held back for one."""

PAUSE_PER_ROUND, PAUSE_S = 1.0, 0.25
"""After a round, until the next: so many times what it took, and the most. While many start, what
happens to each meanwhile is looked at together; one that starts alone is not kept waiting."""


class Controller:
    """The API's calls (`interface.ControllerApi`) and the loop that makes steps of them."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        rules: WorkloadRules,
        addresses: Addresses,
        metrics: ControllerMetrics,
        prometheus: Prometheus | None = None,
        subscribers: Subscribers = NO_SUBSCRIBERS,
        usage: UsageSource = nothing_known,
    ) -> None:
        self._store = store
        self._engine = engine
        self._rules = rules
        self._addresses = addresses
        self._metrics = metrics
        self._subscribers = subscribers
        self._dirty: set[int] = set()
        self._wake = asyncio.Event()
        self._stopping = False
        self._quotas_stale = True
        self._bounds: Resources | None = None
        """What there may ever be, as grants hold to it."""
        self.tokens = EndpointTokens(store, self._wake.set, subscribers.readers_read)
        self._listed = False
        """Whether every deployment of the store is known by its id."""
        self._unknown: dict[int, int] = {}
        """Failed steps per deployment not yet read: a route table without it would end it."""
        self._unstated: set[int] = set()
        """Deployments of which the engine does not know yet what is wanted."""
        self.states = DeploymentStates()
        self._callers = ReplicaCallers(engine, self.states, rules.keys, addresses)
        self.replica_with, self.call_target = self._callers.replica_with, self._callers.call_target
        logs = ReplicaLogs(engine, self.states)
        self.logs, self.follow_log = logs.last_lines, logs.follow
        self.series = SeriesRecorder(store, usage, lambda: self._view.standby_gpus())
        self.gateways = RouteLinks(
            self._demand_changed,
            self._gateway_came,
            subscribers.notify,
            self.tokens.used,
            self.series.counted,
        )
        self._view = SeriesView(
            self.series, self.states, engine, self.gateways.demand, rules.instance_types
        )
        self._queries = QueryWatch(prometheus or Prometheus(""), self._look_at)
        self.changes = ChangeFeed()
        self._recorder = EventRecorder(store, self.states.scaling, metrics, self.changes.written)
        self._reconciler = Reconciler(
            store, engine, self.states, self.gateways, self._queries, self._recorder, rules
        )
        self.ready = asyncio.Event()
        """Set when every deployment has been looked at once and a gateway listens for all."""

    # What the API asks ---------------------------------------------------------------------

    def poke(self, deployment_id: int) -> None:
        if state := self.states.get(deployment_id):
            state.settled.clear()
        self.states.mark_stale(deployment_id)
        self._look_at(deployment_id)

    def tokens_changed(self) -> None:
        self.tokens.changed()

    def quotas_changed(self) -> None:
        self._quotas_stale = True
        self._wake.set()

    async def admit(self, organization: str) -> None:
        tenancy = self._rules.tenancy
        if tenancy.missing:
            served = await self._store.run(self._store.deployments.served_organizations)
            if why := tenancy.refusal(organization, served):
                raise Alone(why)
            self.quotas_changed()  # of two that come at once, one gets no replica

    def least(
        self,
        manifest: Mapping[str, Any],
        config: Mapping[str, Any],
        labels: Sequence[Mapping[str, str]],
    ) -> Amounts:
        return least_amounts(manifest, config, labels, self._rules)

    def notes(
        self, manifest: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Sequence[tuple[str, str]]:
        return notes(manifest, config, self._rules)

    def usage(self, organization: str) -> Amounts:
        return usage(organization, self._engine.replicas())

    async def outcome(self, deployment_id: int, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                if (state := await self.states.read(deployment_id)) is not None:
                    await state.settled.wait()

    def rollout(self, deployment_id: int) -> Rollout:
        state = self.states.get(deployment_id)
        if state is None:
            return UNSEEN
        return rollout_of(state, state.mine(self._engine.replicas()))

    def live(self, deployment_id: int) -> dict[str, Any]:
        state = self.states.get(deployment_id)
        if state is None:
            return {"services": [], "replicas": []}
        replicas = state.mine(self._engine.replicas())
        answers = self.gateways.answers(public_name(state.deployment))
        rollout = rollout_json(state, replicas, answers)
        for version in self.states.versions_of(deployment_id):
            own = version.mine(self._engine.replicas())
            answers = self.gateways.answers(public_name(version.deployment))
            rollout["versions"] += rollout_json(version, own, answers)["versions"]
        weigh(rollout["versions"], state.deployment.canary.get("weights", {}))
        return live_json(state, replicas) | {"rollout": rollout}

    def demands(self, deployment_id: int) -> Sequence[DemandRecord]:
        state = self.states.get(deployment_id)
        return () if state is None else tuple(state.demands.unwritten)

    def manifests(self) -> frozenset[str] | None:
        """Manifests of all files that replicas use or would use; None while not all are known."""
        wanted = self.states.manifests() if self._listed else None
        if wanted is None:
            return None
        return wanted.union(*(replica.manifests for replica in self._engine.replicas()))

    def instance_types(self) -> Sequence[dict[str, Any]]:
        return instance_types(self._rules.instance_types)

    # The loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled. Replicas go on running then, and nobody waits for an outcome."""
        try:
            await self._engine.start()
            for deployment_id in await self._store.run(self._store.deployments.ids):
                self._unknown[deployment_id] = 0
                self._unstated.add(deployment_id)
                self._look_at(deployment_id)
            self._listed = True
            before = _by_id(self._engine.replicas())
            async with asyncio.TaskGroup() as group:
                await self._step_all()
                group.create_task(self._watch_engine(before))
                group.create_task(self._queries.run())
                now = asyncio.get_running_loop().time
                while True:
                    await self._wait()
                    began = now()
                    await self._step_all()
                    await asyncio.sleep(min(PAUSE_PER_ROUND * (now() - began), PAUSE_S))
        finally:
            await self._recorder.flush()
            self.states.let_waiters_go()

    async def shutdown(self, drain_s: float) -> None:
        """Let running requests end, at most `drain_s`, then stop every replica, for good."""
        self._stopping = True
        self.gateways.publish([])
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                while self.gateways.connected and not all(
                    self.gateways.idle(replica.id) for replica in self._engine.replicas()
                ):
                    self._wake.clear()
                    await self._wake.wait()
        await self._engine.stop_all()

    async def _watch_engine(self, before: Mapping[str, Replica]) -> None:
        """`before` are the replicas that the first steps have found."""
        while True:
            await self._engine.changed()
            after = _by_id(self._engine.replicas())
            differing = {
                (after.get(name) or before[name]).key
                for name in {*before, *after}
                if before.get(name) != after.get(name)
            }
            before = after
            self._metrics.count(list(after.values()))
            if self._engine.bounds() != self._bounds:
                self.quotas_changed()
            for deployment_id in self.states.allocations.waiting():
                self._look_at(deployment_id)
            for state in self.states:
                if any(state.owns(key) for key in differing):
                    self._look_at(state.deployment.id)

    def _demand_changed(self, routes: Sequence[str]) -> None:
        if self.gateways.in_force:
            self.ready.set()
        prefixes = {route.split("@")[0] for route in routes}
        for state in self.states:
            # What drains is looked at too: its route may be gone from the report by now.
            if public_name(state.deployment) in prefixes or state.draining:
                self._look_at(state.deployment.id)
        self._wake.set()

    def _gateway_came(self) -> None:
        self.states.scaling.gateway_restarted(asyncio.get_running_loop().time())

    def _look_at(self, deployment_id: int) -> None:
        self.states.expect(deployment_id)
        self._dirty.add(deployment_id)
        self._wake.set()

    async def _wait(self) -> None:
        now = asyncio.get_running_loop().time()
        times = [state.next_at for state in self.states if state.next_at is not None]
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(times) - now) if times else None):
                await self._wake.wait()
        self._wake.clear()
        now = asyncio.get_running_loop().time()
        for state in self.states:
            if state.next_at is not None and state.next_at <= now:
                self._dirty.add(state.deployment.id)

    async def _step_all(self) -> None:
        if self._quotas_stale and not await self._limit():
            return
        await self.tokens.read()
        dirty, self._dirty = self._dirty, set()
        if self._stopping:
            return
        todo, foreseen = sorted(dirty), False
        for number, deployment_id in enumerate(todo):
            foreseen = foreseen or self._reconciler.foresee(todo[number:])
            try:
                await self._reconciler.step(deployment_id)
                self._unknown.pop(deployment_id, None)
                self._unstated.discard(deployment_id)
            except Exception as error:
                # One deployment's trouble must not stop the others: it is tried again.
                tries = self._unknown.pop(deployment_id, UNREAD_TRIES) + 1
                if tries < UNREAD_TRIES:
                    self._unknown[deployment_id] = tries
                # A full disk, or too few descriptors, is an operator's to cure: the sentence says
                # so, a traceback would not.
                log.error(
                    "deployment %s: this step failed and will be repeated: %s",
                    deployment_id,
                    error,
                    exc_info=not isinstance(error, StoreFailed) and not are_short(error),
                )
                asyncio.get_running_loop().call_later(RETRY_S, self._look_at, deployment_id)
            self._recorder.flush_if_many(self._try_again)
            # Also after a step that could write nothing.
            if state := self.states.get(deployment_id):
                state.route(self._engine.replicas(), self._addresses)
                self._view.look(state, state.mine(self._engine.replicas()))
                if state.deployment.parent_id is not None:  # what its versions do, is shown there
                    self.changes.changed(state.deployment.parent_id)
            else:
                self.series.forget(deployment_id)
            self.changes.changed(deployment_id)
            await asyncio.sleep(0)  # a round may be of thousands, and others have their turns too
        if not self._unstated:  # however long it takes: what these have goes on
            there = {replica.key for replica in self._engine.replicas()}
            await self._engine.expect(self.states.expected(there))
        for deployment_id in (*self.states.allocations.affected(), *self.states.to_hear()):
            self._look_at(deployment_id)
        self._publish()
        self._recorder.flush_soon(self._try_again)

    def _try_again(self) -> None:
        asyncio.get_running_loop().call_later(RETRY_S, self._wake.set)

    async def _limit(self) -> bool:
        """Hold to the quotas as the store has them now, and to what there may be. Without knowing
        them nothing may be started.
        """
        self._quotas_stale = False
        tenancy = self._rules.tenancy
        try:
            quotas = await self._store.run(self._store.quotas.all)
            if tenancy.missing:
                served = await self._store.run(self._store.deployments.served_organizations)
                quotas = dict(tenancy.limited(quotas, served))
        except StoreFailed as error:
            log.error("the quotas cannot be read: %s", error)
            asyncio.get_running_loop().call_later(RETRY_S, self.quotas_changed)
            self._quotas_stale = True
            return False
        self._bounds = self._engine.bounds()
        self.states.allocations.limit(quotas, self._bounds)
        self._subscribers.quotas_read(quotas)
        return True

    def _publish(self) -> None:
        if self._unknown:
            return
        self.series.all_are_known()
        if self.tokens.accepted is None:
            return
        routes = with_canaries(
            [route for state in self.states for route in state.routes],
            [state.deployment for state in self.states],
        )
        routes.sort(key=lambda route: route.name)
        tokens = self._callers.added_to(self.tokens.accepted)
        self.gateways.publish(routes, tokens, self.tokens.readers)


def _by_id(replicas: Sequence[Replica]) -> Mapping[str, Replica]:
    return {replica.id: replica for replica in replicas}
