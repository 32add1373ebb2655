"""What people read of replicas, and what callers do not."""

from __future__ import annotations

import pytest

from hotplate.platform.controller.planning import messages


@pytest.mark.parametrize(
    ("tasks", "what"), [(1, "it finishes a task first"), (2, "it finishes 2 tasks first")]
)
def test_a_replica_that_drains_says_for_how_long_it_may(tasks: int, what: str) -> None:
    assert messages.finishing(tasks, 5400.0).startswith(f"{what}, within 1.5 h, ")


@pytest.mark.parametrize(
    ("replicas", "text"), [(0, "0 replicas"), (1, "1 replica"), (2, "2 replicas")]
)
def test_replicas_are_counted(replicas: int, text: str) -> None:
    assert messages.counted(replicas) == text
