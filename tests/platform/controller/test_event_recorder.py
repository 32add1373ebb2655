"""What is kept of decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hotplate.autoscaler.policy import Replicas
from hotplate.deploy.phases import Phase
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.event_recorder import LEARNT_EVERY_S, EventRecorder
from hotplate.platform.controller.metrics import ControllerMetrics
from hotplate.platform.controller.planning.slot_counts import SlotCounts
from hotplate.platform.controller.scaling.deciders import Scaling
from hotplate.platform.controller.scaling.demand_log import UNWRITTEN_S
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import DecisionRecord, DesiredState, Kind
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.situations import replica, service


@dataclass
class Decided:
    """One service of a deployment with one replica, as demand comes and goes."""

    store: Store
    state: DeploymentState
    scaling: Scaling
    recorder: EventRecorder

    async def at(self, now: float, demand: RouteDemand | None, revision: int = 1) -> None:
        recommendation = self.scaling.recommend(
            service(revision, least=1), 1, demand, Replicas(1), now, memory=None
        )
        wall = datetime.now(UTC).timestamp()
        self.state.demands.note(recommendation.key, demand, recommendation.replicas, now, wall)
        self.recorder.decided(self.state, [recommendation], now)
        await self.recorder.flush()

    @property
    def records(self) -> list[DecisionRecord]:
        return self.store.history.decisions(self.state.deployment.id)

    @property
    def learnt(self) -> Any:
        return self.store.learnt.get(self.state.memory_key("Echo"))


@pytest.fixture
def decided(store: Store) -> Decided:
    user = store.identities.ensure_user("acme", "ann", "ann@localhost")
    organization = user.organization.id
    store.artifacts.ensure_repository(organization, Kind.BENTO, "echo")
    draft = ArtifactDraft(version="v1", manifest={})
    bento = store.artifacts.create(organization, Kind.BENTO, "echo", draft)
    made = store.deployments.create(user, "echo", RevisionDraft(bento.id, {}))
    scaling = Scaling()
    recorder = EventRecorder(store, scaling, ControllerMetrics(CollectorRegistry()))
    return Decided(store, DeploymentState(made), scaling, recorder)


async def test_requests_that_change_no_count_leave_no_record(decided: Decided) -> None:
    """Else the thousand that are kept would be the last minutes' requests."""
    for second in range(20):
        await decided.at(float(second), RouteDemand(in_flight=second % 2))
    assert [record.desired for record in decided.records] == [1]
    await decided.at(20.0, RouteDemand(in_flight=1, queued=9, service_s=60))
    assert decided.records[0].desired > 1


async def test_a_decision_is_kept_with_what_it_was_made_from(decided: Decided) -> None:
    await decided.at(0.0, RouteDemand(in_flight=1, queued=9, service_s=60))
    await decided.at(1.0, None)
    silent, told = (record.inputs for record in decided.records)
    figures = {"in_flight": 1, "queued": 9, "service_s": 60, "ready": 1, "starting": 0}
    assert told == figures | {"heard": True, "slots": ""}
    assert silent["heard"] is False


async def test_a_decision_is_over_when_another_revision_decides(decided: Decided) -> None:
    await decided.at(0.0, RouteDemand())
    decided.state.deployment = replace(
        decided.state.deployment, serving=replace(decided.state.deployment.latest, number=2)
    )
    await decided.at(1.0, RouteDemand(), revision=2)
    await decided.at(2.0, RouteDemand(), revision=2)
    found = [(one.revision, one.desired, one.reason) for one in reversed(decided.records)]
    assert found[1] == (1, 0, "1 of 0: revision 2 has taken its place")
    assert [(revision, desired) for revision, desired, _ in found] == [(1, 1), (1, 0), (2, 1)]


async def test_a_decision_is_over_when_its_deployment_is_terminated(decided: Decided) -> None:
    await decided.at(0.0, RouteDemand())
    ended = replace(decided.state.deployment, wanted=DesiredState.TERMINATED)
    decided.state.deployment = ended
    for now in (1.0, 2.0):
        decided.recorder.decided(decided.state, [], now)
        await decided.recorder.flush()
    found = [(one.desired, one.reason) for one in decided.records]
    assert found[0] == (0, "1 of 0: the deployment was terminated")
    assert len(found) == 2, "once"


async def test_demand_is_kept_with_each_decision_and_within_a_minute_without(
    decided: Decided,
) -> None:
    def kept() -> list[tuple[int, int]]:
        demands = decided.store.history.demands(decided.state.deployment.id)
        return [(one.arrived, one.in_flight) for one in reversed(demands)]

    await decided.at(0.0, RouteDemand(in_flight=1))
    assert kept() == [(1, 1)], "the first decision"
    await decided.at(1.0, RouteDemand(in_flight=0, completed=1))
    assert kept() == [(1, 1)]
    assert decided.state.next_at == 1.0 + UNWRITTEN_S, "a look is due"
    await decided.at(1.0 + UNWRITTEN_S, RouteDemand(in_flight=0, completed=1))
    assert kept() == [(1, 1), (0, 0)]


async def test_a_gateway_that_is_not_heard_is_on_record_once(decided: Decided) -> None:
    await decided.at(0.0, RouteDemand())
    await decided.at(1.0, None)
    await decided.at(2.0, None)
    assert len(decided.records) == 2


async def test_what_is_learnt_is_written_once_a_minute_without_a_change(decided: Decided) -> None:
    await decided.at(0.0, RouteDemand())
    first = decided.learnt
    await decided.at(1.0, RouteDemand(in_flight=1))
    await decided.at(2.0, RouteDemand())
    assert decided.learnt == first
    await decided.at(LEARNT_EVERY_S + 1, RouteDemand(in_flight=1))
    assert decided.learnt != first


async def test_where_slots_are_from_is_written_as_soon_as_somebody_is_told(
    decided: Decided,
) -> None:
    told = {"concurrency": None, "learns": "async methods", "batch": 0, "only_tasks": False}
    replicas = [replace(replica("a"), self_report=told)]
    for at, label in enumerate(["", "6", ""]):
        news = decided.state.slots.update([service(1, least=1)], replicas, [], label)
        await decided.at(float(at), RouteDemand())
        assert news

        after = SlotCounts()
        after.restore(service(1, least=1), decided.learnt)
        assert not after.update([service(1, least=1)], replicas, [], label)


async def test_only_a_status_that_is_news_is_waited_for(decided: Decided) -> None:
    """At a start each of thousands of deployments that are as they were would wait for the disk."""
    made = decided.state.deployment
    decided.recorder.counted(decided.state, ["2 slots"])
    decided.recorder.found(decided.state, made.status, made.reason)
    assert await decided.recorder.flush_of(made.id)
    assert "Slots" not in [event.kind for event in decided.store.history.events(made.id)]
    decided.recorder.found(decided.state, "running", "1 replica ready")
    assert await decided.recorder.flush_of(made.id)
    written = decided.store.deployments.get(made.id)
    assert written is not None and written.status == "running"
    assert "Slots" in [event.kind for event in decided.store.history.events(made.id)]


async def test_a_start_is_kept_again_once_its_replica_tells_of_it(decided: Decided) -> None:
    """A pod is asked only when it is ready; on one machine it has told by then."""
    made = replica("echo-1-echo-aaaaa", ready_at=12.0, phases=(Phase("init", 10.0, 12.0),))
    told = replace(
        made, self_report={"so": "it was"}, phases=(*made.phases, Phase("weights", 10.5, 11.0))
    )
    names = []
    for seen in (made, told, told):
        decided.recorder.record_problems(decided.state, [seen])
        await decided.recorder.flush()
        (start,) = decided.store.history.cold_starts(decided.state.deployment.id)
        names.append([phase["name"] for phase in start.phases])
    assert names == [["init"], ["init", "weights"], ["init", "weights"]]
