"""What the autoscaler recommends for each service of a deployment, and what it was made from."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from typing import Protocol
from zoneinfo import ZoneInfo

from hotplate.autoscaler.rules.schedule import Floor, Schedule
from hotplate.deploy.engine import Replica
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.deployment_states import DeploymentStates
from hotplate.platform.controller.planning.observed import Observed
from hotplate.platform.controller.planning.routing import public_name
from hotplate.platform.controller.planning.turnovers import sharing
from hotplate.platform.controller.planning.workloads import Service
from hotplate.platform.controller.rollouts.comparison import Counted
from hotplate.platform.controller.scaling.deciders import Recommendation, counts
from hotplate.platform.controller.scaling.query_watch import QueryWatch
from hotplate.platform.spec.annotations import binary_of
from hotplate.platform.spec.label_settings import LabelSettings
from hotplate.serving.gateway.protocol.routes import TASKS, RouteDemand


class GatewayView(Protocol):
    """What a step asks of the gateways; `RouteLinks` answers it."""

    @property
    def connected(self) -> bool: ...
    def demand(self, route: str) -> RouteDemand | None: ...
    def idle(self, replica: str) -> bool: ...
    def busy(self, replica: str) -> int: ...
    def tasks(self, replica: str) -> int: ...
    def abandoned(self, replica: str) -> int: ...
    def answers(self, route: str) -> Counted: ...


class Recommender:
    """Asks the deciders of a deployment's services, and its queries where those decide."""

    def __init__(
        self,
        states: DeploymentStates,
        gateways: GatewayView,
        queries: QueryWatch,
    ) -> None:
        self._allocations = states.allocations
        self._scaling = states.scaling
        self._gateways = gateways
        self._queries = queries

    def recommend(
        self, state: DeploymentState, replicas: Sequence[Replica], overdue: frozenset[str]
    ) -> tuple[list[Recommendation], Observed]:
        """What is recommended for each service, and what was observed of the deployment, which has
        these replicas now.

        Those in `overdue` have drained for as long as they may: they count as idle.
        """
        now, wall = asyncio.get_running_loop().time(), datetime.now(UTC).timestamp()
        state.note_begun(replicas, now, wall)
        recommended: list[Recommendation] = []
        settings = LabelSettings.of(state.deployment.labels)
        floor = _floor(settings, now)
        for service in state.answering():
            key = service.workload.key
            alike = _alike(state, service)
            own = [replica for replica in replicas if replica.key in alike]
            there = counts(own, state.draining, state.begun)
            route = state.route_of(key)
            slots, demand = state.slots.load(
                service, self._demand(state, alike), self._gateways.demand(route + TASKS)
            )
            memory = state.memories.get(service.name)
            state.demands.note(key, demand, there, now, wall)
            recommendation = self._scaling.recommend(
                service,
                slots,
                demand,
                there,
                now,
                memory=memory,
                floor=floor,
                price_gpu_s=settings.price,
            )
            recommendation = replace(recommendation, slots=state.slots.of(service).text())
            recommended.append(self._switched(state, service, recommendation, own, now))
            state.look_by(recommended[-1].decision.next_at)
        compared = sharing(state.deployment) is not None
        return recommended, Observed(
            deployment=state.deployment,
            services=state.services,
            desired={each.key: each.decision.desired for each in recommended},
            replicas=replicas,
            draining=state.draining,
            idle=overdue | {r for r in state.drains_known() if self._gateways.idle(r)},
            busy={r.id: n for r in replicas if (n := self._gateways.busy(r.id))},
            ages_s={name: now - begun for name, begun in state.begun.items()},
            ordered=frozenset(filter(state.owns, self._allocations.ordered())),
            unserved=state.traffic.unserved.get(public_name(state.deployment), ""),
            uncallable=state.uncallable,
            portless=state.portless,
            now=wall,
            worse=state.answers.verdict if compared and settings.auto_rollback else "",
            answers=state.answers.answers if compared else 0,
        )

    def _demand(self, state: DeploymentState, keys: Sequence[WorkloadKey]) -> RouteDemand | None:
        """That of a service of all revisions that have requests for it; None = not reported."""
        routes = dict.fromkeys(map(state.route_of, keys))
        demands = [self._gateways.demand(route) for route in routes]
        known = [demand for demand in demands if demand is not None]
        if len(known) < len(demands):
            return None
        return reduce(_together, known)

    def _switched(
        self,
        state: DeploymentState,
        service: Service,
        recommendation: Recommendation,
        own: Sequence[Replica],
        now: float,
    ) -> Recommendation:
        """What is recommended for an entry service whose deployment lets queries decide."""
        deployment = state.deployment
        binary = binary_of(deployment.labels)
        if not service.workload.entry:
            return recommendation
        readings = self._queries.follow(deployment.id, binary)
        if binary is None:
            self._scaling.unswitch(deployment.id)
            return recommendation
        # While no gateway says what runs where, a job may run on each.
        known = self._gateways.connected
        busy = sum(not known or self._gateways.busy(replica.id) > 0 for replica in own)
        memory = state.memories.get(service.name) or {}
        wall = datetime.now(UTC).timestamp()
        return self._scaling.switch(
            deployment.id,
            binary,
            readings,
            recommendation,
            busy=busy,
            now=now,
            memory=memory,
            wall=wall,
        )


def _alike(state: DeploymentState, service: Service) -> list[WorkloadKey]:
    """The service's workload, and those of other revisions that do its work beside it now."""
    key = service.workload.key
    if sharing(state.deployment) is None:
        return [key]
    others = (other for members in state.services.values() for other in members)
    return [key] + [
        other.workload.key
        for other in others
        if other.workload.key != key
        and other.workload.entry == service.workload.entry
        and (other.workload.entry or other.name == service.name)
    ]


def _together(one: RouteDemand, other: RouteDemand) -> RouteDemand:
    """The demand of two routes, as far as a decider looks at it."""
    since = [each.oldest_at for each in (one, other) if each.oldest_at is not None]
    return replace(
        one,
        in_flight=one.in_flight + other.in_flight,
        queued=one.queued + other.queued,
        completed=one.completed + other.completed,
        refused=one.refused + other.refused,
        peak=one.peak + other.peak,
        service_s=max(one.service_s, other.service_s),
        oldest_at=min(since, default=None),
    )


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
