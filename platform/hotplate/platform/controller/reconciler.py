"""One step for one deployment: gather what is wanted, there and asked for, decide, plan, apply.

A step looks at all of the deployment, so whatever was missed or cut off before is made good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from hotplate.autoscaler.sharing.allocation import Allocation, AllocationRequest
from hotplate.deploy.engine import Engine, Replica
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.deployment_state import UNSETTLED, DeploymentState
from hotplate.platform.controller.deployment_states import DeploymentStates
from hotplate.platform.controller.event_recorder import EventRecorder
from hotplate.platform.controller.loading import Loader
from hotplate.platform.controller.planning.messages import failed
from hotplate.platform.controller.planning.observed import Observed, RolloutVerdict
from hotplate.platform.controller.planning.plan import NextStep, plan
from hotplate.platform.controller.planning.routing import public_name, version_of
from hotplate.platform.controller.planning.workloads import WorkloadRules
from hotplate.platform.controller.recommender import GatewayView, Recommender
from hotplate.platform.controller.resource_requests import resource_requests
from hotplate.platform.controller.rollouts.comparison import AnswerWindow
from hotplate.platform.controller.scaling.deciders import Recommendation
from hotplate.platform.controller.scaling.query_watch import QueryWatch
from hotplate.platform.log_format import events
from hotplate.platform.spec.annotations import binary_of
from hotplate.platform.spec.label_settings import LabelSettings
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment, RolloutOutcome

RETRY_S = 1.0
"""Pause after a step that failed for a reason of our own (disk full, database locked)."""
PORTS_AGAIN_S = 5.0
"""How soon a deployment without ports asks for them again: another one may have given its back."""
DAY_S = 86_400.0
"""Nothing that is known now is waited for longer than this at once."""

log = logging.getLogger("hotplate.controller")


class Reconciler:
    """Takes a deployment a step nearer to what is wanted; the controller says whose turn it is."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        states: DeploymentStates,
        gateways: GatewayView,
        queries: QueryWatch,
        recorder: EventRecorder,
        rules: WorkloadRules,
    ) -> None:
        self._store = store
        self._engine = engine
        self._states = states
        self._allocations = states.allocations
        self._recommender = Recommender(states, gateways, queries)
        self._gateways = gateways
        self._queries = queries
        self._recorder = recorder
        self._loader = Loader(store, rules)

    async def step(self, deployment_id: int) -> None:
        """Look at all of it and bring it one step nearer to what is wanted.

        Raises what the store or the engine raises; nothing is lost then, the step is repeated.
        """
        state, there = self._states.get(deployment_id), self._engine.replicas()
        outlived = state is not None and state.outlived(there)
        unread = state is None or outlived or bool(state.portless)
        if unread or self._states.is_stale(deployment_id):
            if state is not None:
                await self._recorder.flush()  # else it is read as it was before the last steps
            self._states.clear_stale(deployment_id)
            state = await self._load(deployment_id)
            there = self._engine.replicas()
        if state is None:
            return
        replicas = state.mine(there)
        state.next_at = None
        self._recorder.record_problems(state, replicas)
        now = asyncio.get_running_loop().time()
        if state.portless:
            state.look_by(now + PORTS_AGAIN_S)
        self._follow_reports(state, replicas, now)
        if (binary := binary_of(state.deployment.labels)) is not None:
            readings = self._queries.follow(deployment_id, binary)
            self._recorder.asked(state, binary, readings)
        self._count_tasks(state)
        state.follow_answers(self._gateways.answers(public_name(state.deployment)))
        await self._follow_canary(state, now)
        overdue = state.overdue(replicas, now)
        self._recorder.cut(state, overdue)
        # A grant holds for the instant that it was made from, because the engine makes and stops
        # replicas meanwhile: since it was asked which there are nothing has been awaited, and what
        # happened is written later.
        recommended, granted, step = self._decide(state, there, overdue)
        for scale in step.scales:
            if service := state.find(scale.key):
                self._allocations.note_order(service.workload, scale.count)
                await self._engine.scale(service.workload, scale.count, remove=scale.remove)
        self._recorder.granted(state, granted)
        self._recorder.decided(state, recommended, now)
        await self._conclude(state, step)

    async def _follow_canary(self, state: DeploymentState, now: float) -> None:
        """Where it is a version beside `main` that answers worse than that, it gets no more."""
        version, main = state.deployment, self._main_of(state.deployment)
        if main is None or version.serving is None or main.deployment.serving is None:
            return
        pair = (
            version_of(version, version.serving.number),
            version_of(main.deployment, main.deployment.serving.number),
        )
        if state.beside_main_of != pair:
            state.beside_main, state.beside_main_of = AnswerWindow(), pair
        own = self._gateways.answers(public_name(version))
        others = self._gateways.answers(public_name(main.deployment))
        counted = {name: {**others.get(name, {}), **answers} for name, answers in own.items()}
        weight = main.deployment.canary.get("weights", {}).get(version.version, 0)
        state.beside_main.look(counted, *pair, both=bool(weight))
        settings = LabelSettings.of(main.deployment.labels)
        if weight and settings.auto_rollback and (reason := state.beside_main.verdict):
            await self._store.run(
                self._store.deployments.stop_version,
                main.deployment.id,
                version.version,
                reason,
            )
            state.beside_main_of = ("", "")
            self._states.mark_stale(main.deployment.id)
            main.look_by(now)

    def _main_of(self, version: Deployment) -> DeploymentState | None:
        return None if version.parent_id is None else self._states.get(version.parent_id)

    def foresee(self, deployment_ids: Iterable[int]) -> bool:
        """Have what is scarce shared once among all that have their turn now, as far as it is
        known here what they will ask for: else each step that asks for another number would share
        it anew. Whether anything is scarce."""
        if not self._allocations.scarce:
            return False
        there = self._engine.replicas()
        for deployment_id in deployment_ids:
            state = self._states.get(deployment_id)
            if state is not None and not self._states.is_stale(deployment_id):
                with suppress(Exception):  # its step has the same trouble, and tells of it
                    recommended, observed = self._recommender.recommend(
                        state, state.mine(there), frozenset()
                    )
                    self._allocations.request(
                        deployment_id, self._requests(state, observed, recommended)
                    )
        self._allocations.share()
        return True

    def _requests(
        self,
        state: DeploymentState,
        observed: Observed,
        recommended: Sequence[Recommendation],
    ) -> list[AllocationRequest[WorkloadKey]]:
        return resource_requests(state, observed, recommended, self._engine.footprint_bytes)

    def _decide(
        self, state: DeploymentState, there: Sequence[Replica], overdue: frozenset[str]
    ) -> tuple[list[Recommendation], Mapping[WorkloadKey, Allocation], NextStep]:
        """What is recommended, what of it is granted, and what to do now; `there` are the replicas
        of all deployments."""
        recommended, observed = self._recommender.recommend(state, state.mine(there), overdue)
        requests = self._requests(state, observed, recommended)
        granted = self._allocations.grant(state.deployment.id, requests, there)
        recommended = [replace(each, grant=granted.get(each.key)) for each in recommended]
        step = plan(replace(observed, allocations=granted))
        now = asyncio.get_running_loop().time()
        state.drain(step.draining, now)
        state.shift, state.targets = step.shift, step.targets
        if step.shift is not None and step.shift.next_at is not None:
            state.look_by(now + max(0.0, step.shift.next_at - observed.now))
        self._count_tasks(state)
        return recommended, granted, step

    def _count_tasks(self, state: DeploymentState) -> None:
        """On what drains: it has longer to end while one runs."""
        state.tasks = {r: n for r in state.draining if (n := self._gateways.tasks(r))}

    def _follow_reports(
        self, state: DeploymentState, replicas: Sequence[Replica], now: float
    ) -> None:
        """While a route has no owner, nobody can say who is out."""
        counts = {r.id: n for r in replicas if (n := self._gateways.abandoned(r.id))}
        state.traffic.abandoned = counts
        demands = {route.name: self._gateways.demand(route.name) for route in state.routes}
        known = {name: demand for name, demand in demands.items() if demand is not None}
        news = state.follow_slots(replicas, known.values())
        self._recorder.counted(state, news)
        if len(known) == len(demands):
            self._recorder.reported(state, known, replicas, now)

    async def _conclude(self, state: DeploymentState, step: NextStep) -> None:
        deployment = state.deployment
        if step.verdict is not None:
            await self._rule(deployment, step.verdict)
        if step.status == "terminated" and deployment.serving is not None:
            await self._store.run(self._store.revisions.stop_serving, deployment.id)
            self._states.mark_stale(deployment.id)
        self._recorder.progressed(state, state.mine(self._engine.replicas()))
        self._recorder.found(state, step.status, step.reason)
        if step.status not in UNSETTLED and not state.settled.is_set():
            # For those who read it then. At a start thousands are as they were: each would wait for
            # the disk.
            if not await self._recorder.flush_of(deployment.id):
                state.look_by(asyncio.get_running_loop().time() + RETRY_S)
            elif not self._states.is_stale(deployment.id):
                state.settled.set()
        if step.is_gone:
            await self._forget(state)
            events.info("%s: nothing is left of it, as it was deleted", deployment.name)
        elif self._states.is_stale(deployment.id):
            await self.step(deployment.id)

    async def _forget(self, state: DeploymentState) -> None:
        """Nothing is left of a deleted deployment, so nothing is kept of it either."""
        deployment = state.deployment
        await self._recorder.flush()  # else it would be written after this
        await self._store.run(self._store.learnt.forget, state.memory_prefix)
        await self._store.run(self._store.deployments.forget, deployment.id)
        await self._store.run(self._store.organizations.finish_deletions)
        self._states.forget(deployment.id)
        name = public_name(deployment)
        if all(public_name(other.deployment) != name for other in self._states):
            self._recorder.forget(name)
        state.settled.set()
        self._queries.follow(deployment.id, None)

    async def _rule(self, deployment: Deployment, verdict: RolloutVerdict) -> None:
        latest = deployment.latest
        event = f"revision {latest.number}: {verdict.reason}"
        if verdict.outcome is RolloutOutcome.FAILED:
            event = failed(deployment, verdict.reason)
        await self._recorder.flush()  # in the order in which it has happened
        await self._store.run(
            self._store.revisions.conclude_rollout,
            latest.id,
            verdict.outcome,
            verdict.reason,
            event,
            verdict.log_tail,
            under_way=True,
        )
        self._recorder.concluded(public_name(deployment), verdict.outcome)
        log.info("%s: %s", deployment.name, event)
        self._states.mark_stale(deployment.id)

    async def _load(self, deployment_id: int) -> DeploymentState | None:
        """Read it from the store; None when it is gone."""
        known = self._states.get(deployment_id)
        running = {replica.key for replica in self._engine.replicas()} | self._allocations.ordered()
        state = await self._store.run(self._loader.load, deployment_id, running, known)
        if state is None:
            self._states.forget(deployment_id)
        else:
            self._states.put(state)
        return state
