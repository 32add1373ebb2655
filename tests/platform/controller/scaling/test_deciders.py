"""Replicas as deciders see them."""

from __future__ import annotations

import pytest

from hotplate.autoscaler.policy import Replicas
from hotplate.deploy.engine import ReplicaState
from hotplate.platform.controller.scaling.deciders import counts
from tests.support.control_plane.situations import NOW, replica

LOOP = 500.0


@pytest.mark.parametrize(
    ("set_by_s", "began_at"),
    [
        pytest.param(0.0, LOOP - 10, id="as it was"),
        pytest.param(3600.0, LOOP - 3610, id="an hour ahead: its start seems to take long"),
        pytest.param(-3600.0, LOOP, id="an hour back: it begins now, and not in an hour"),
    ],
)
def test_a_start_is_never_in_the_future_whatever_the_clock_says(
    set_by_s: float, began_at: float
) -> None:
    replicas = [replica("r1"), replica("r2", state=ReplicaState.STARTING)]
    assert counts(replicas, frozenset(), LOOP, NOW + set_by_s) == Replicas(1, (began_at,))


def test_a_replica_that_waits_to_be_started_again_counts_as_starting() -> None:
    """One that never becomes ready is tried again, and is not joined by another."""
    replicas = [replica("r1", state=ReplicaState.BACKOFF), replica("r2")]
    seen = counts(replicas, frozenset({"r2"}), LOOP, NOW)
    assert (seen.ready, seen.live) == (0, 1), "what drains is gone already"
