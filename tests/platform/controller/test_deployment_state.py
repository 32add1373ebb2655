"""How long replicas may finish what they have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotplate.platform.controller.deployment_state import (
    DRAIN_MARGIN_S,
    STREAMS_S,
    TASKS_S,
    DeploymentState,
)
from hotplate.platform.controller.status_json import live_json
from hotplate.platform.store.records import DesiredState
from tests.support.control_plane.situations import NOW, deployment, replica, revision, service

TIMEOUT_S = 60.0


@pytest.fixture
def state() -> DeploymentState:
    first = revision(1)
    return DeploymentState(deployment(first, first), {1: (service(1),)}, frozenset({1}))


def test_who_deletes_waits_no_longer_than_requests_may_take(state: DeploymentState) -> None:
    state.deployment = replace(state.deployment, wanted=DesiredState.DELETED)
    replicas = [replica("a"), replica("b"), replica("c")]
    state.drain(frozenset({"a"}), now=100.0)
    state.drain(frozenset({"a", "b"}), now=110.0)
    ends = 100.0 + TIMEOUT_S + DRAIN_MARGIN_S
    assert state.overdue(replicas, ends - 1) == frozenset()
    assert state.next_at == ends
    state.next_at = None
    assert state.overdue(replicas, ends) == {"a"}
    assert state.next_at == ends + 10
    state.drain(frozenset(), now=200.0)
    assert state.overdue(replicas, 1000.0) == frozenset()


def test_what_is_scaled_away_may_end_its_streams(state: DeploymentState) -> None:
    state.drain(frozenset({"a"}), now=0.0)
    state.next_at = 5.0
    assert state.overdue([replica("a")], STREAMS_S) == frozenset()
    assert state.next_at == 5.0
    assert state.overdue([replica("a")], STREAMS_S + DRAIN_MARGIN_S) == {"a"}


def test_a_task_may_take_its_hours_on_a_replica_that_is_scaled_away(
    state: DeploymentState,
) -> None:
    replicas = [replica("a", memory_bytes=7), replica("b")]
    state.drain(frozenset({"a", "b"}), now=0.0)
    state.tasks = {"a": 1}
    assert state.overdue(replicas, STREAMS_S + DRAIN_MARGIN_S) == {"b"}
    assert state.next_at == TASKS_S + DRAIN_MARGIN_S
    said = live_json(state, replicas)["replicas"]
    assert [one["state"] for one in said] == ["draining", "draining"]
    assert [one["memory_bytes"] for one in said] == [7, 0]
    assert said[0]["reason"].startswith("it finishes a task first, within 24 h")
    assert state.overdue(replicas, TASKS_S) == {"b"}
    state.tasks = {}
    assert state.overdue(replicas, TASKS_S) == {"a", "b"}


def test_what_queries_turn_on_and_off_shows_their_bounds(state: DeploymentState) -> None:
    said = {"autoscaling/enabled": "true", "autoscaling/max_replicas": "2"}
    labels = tuple({"key": key, "value": value} for key, value in said.items())
    state.deployment = replace(state.deployment, labels=labels)
    (shown,) = live_json(state, [])["services"]
    assert (shown["min_replicas"], shown["max_replicas"]) == (0, 2)
    assert shown["gpus"] == 0.0


@pytest.mark.parametrize(
    ("said", "ends"),
    [(None, 3600.0), ("7200", 7200.0), ("60", STREAMS_S), ("0", STREAMS_S), ("soon", 3600.0)],
)
def test_on_a_replica_that_is_replaced_it_has_an_hour_or_what_the_deployment_says(
    state: DeploymentState, said: str | None, ends: float
) -> None:
    labels = () if said is None else ({"key": "hotplate/task-drain-s", "value": said},)
    newer = revision(2)
    state.deployment = replace(state.deployment, latest=newer, serving=newer, labels=labels)
    state.drain(frozenset({"a"}), now=0.0)
    state.tasks = {"a": 1}
    assert state.overdue([replica("a")], ends + DRAIN_MARGIN_S - 1) == frozenset()
    assert state.overdue([replica("a")], ends + DRAIN_MARGIN_S) == {"a"}


def test_no_task_holds_up_who_terminates_the_deployment(state: DeploymentState) -> None:
    state.deployment = replace(state.deployment, wanted=DesiredState.TERMINATED)
    state.drain(frozenset({"a"}), now=0.0)
    state.tasks = {"a": 1}
    assert state.overdue([replica("a")], TIMEOUT_S + DRAIN_MARGIN_S) == {"a"}


@pytest.mark.parametrize("set_by_s", [-3600.0, 3600.0])
def test_a_replica_is_as_old_as_it_is_however_the_clock_is_set(
    state: DeploymentState, set_by_s: float
) -> None:
    first, second = replica("a"), replica("b", created_at=NOW + 5 + set_by_s)
    state.note_begun([first], 500.0, NOW)
    assert state.begun == {"a": 490.0}, "it was there when the controller started"
    state.note_begun([first, second], 505.0, NOW + 5 + set_by_s)
    assert state.begun == {"a": 490.0, "b": 505.0}
    state.note_begun([second], 506.0, NOW + 6)
    assert state.begun == {"b": 505.0}


def test_a_start_is_never_in_the_future(state: DeploymentState) -> None:
    state.note_begun([replica("a")], 500.0, NOW - 3600)
    assert state.begun == {"a": 500.0}


def test_the_phases_of_a_start_are_told_once_and_when_they_are_all_known(
    state: DeploymentState,
) -> None:
    """A pod says itself what its start consisted of, after it is ready."""
    known, untold = replica("a"), replica("b", phases_known=False)
    first = state.newly_ready([known, untold])
    assert (first.fresh, first.told, first.timed) == ([known, untold], [], [known])
    assert state.newly_ready([known, untold]) == ([], [], [])
    told = replace(untold, phases_known=True, self_report={"slots": 1})
    assert state.newly_ready([known, told]) == ([], [told], [told])
    assert state.newly_ready([known, told]) == ([], [], [])
