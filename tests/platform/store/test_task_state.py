from __future__ import annotations

import pytest

from hotplate.platform.errors import Conflict
from hotplate.platform.store.task_state import (
    ENDED,
    Cancel,
    Event,
    Start,
    Status,
    TaskEnd,
    TaskState,
    after,
)

WAITING = TaskState()
RUNNING = TaskState(Status.IN_PROGRESS, "g1")


def gone(gateway: str) -> bool:
    return gateway == "dead"


@pytest.mark.parametrize(
    ("standing", "event", "expected"),
    [
        pytest.param(WAITING, Start("g1"), RUNNING, id="a slot is there"),
        pytest.param(WAITING, Cancel(), TaskState(Status.CANCELED), id="cancelled while it waits"),
        pytest.param(RUNNING, Start("g1"), RUNNING, id="sent again by the gateway that has it"),
        pytest.param(
            TaskState(Status.IN_PROGRESS, "dead"),
            Start("g1"),
            RUNNING,
            id="taken over from the dead",
        ),
        pytest.param(RUNNING, TaskEnd("g1", 200), TaskState(Status.COMPLETED, "g1"), id="a result"),
        pytest.param(RUNNING, TaskEnd("g1", 500), TaskState(Status.FAILED, "g1"), id="an error"),
        pytest.param(
            TaskState(Status.IN_PROGRESS, "dead"),
            TaskEnd("g2", 502),
            TaskState(Status.FAILED, "g2"),
            id="given up for the dead",
        ),
    ],
)
def test_a_task_goes_on(standing: TaskState, event: Event, expected: TaskState) -> None:
    assert after(standing, event, gone) == expected


@pytest.mark.parametrize(
    ("standing", "event", "why"),
    [
        pytest.param(RUNNING, Cancel(), "cancellation is not supported", id="cancel while it runs"),
        pytest.param(RUNNING, Start("g2"), "in_progress", id="start what another one has"),
        pytest.param(RUNNING, TaskEnd("g2", 200), "in_progress", id="end what another one has"),
        pytest.param(WAITING, TaskEnd("g1", 200), "pending", id="end what has not started"),
    ],
)
def test_what_would_run_a_task_twice_is_refused(
    standing: TaskState, event: Event, why: str
) -> None:
    with pytest.raises(Conflict, match=why):
        after(standing, event, gone)


@pytest.mark.parametrize("status", sorted(ENDED))
@pytest.mark.parametrize("event", [Start("g1"), TaskEnd("g1", 200), Cancel()], ids=str)
def test_a_task_ends_once(status: Status, event: Event) -> None:
    with pytest.raises(Conflict, match=status):
        after(TaskState(status, "g1"), event, gone)
