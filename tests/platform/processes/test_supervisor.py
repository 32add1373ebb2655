"""When a role that has died is started again."""

from __future__ import annotations

import pytest

from hotplate.deploy.process.backoff import Backoff
from hotplate.platform.processes.supervisor import RESTARTS


@pytest.mark.parametrize(
    ("worked_for_s", "pauses_s"),
    [
        pytest.param([3600.0], [0], id="one that has worked"),
        pytest.param([3600.0, 0.0, 9.0], [0, 1, 2], id="one that dies again"),
        pytest.param([3600.0, 0.0, 10.0, 0.0], [0, 1, 0, 1], id="one that has worked again"),
        pytest.param([0.0] * 9, [0, 1, 2, 4, 8, 16, 30, 30, 30], id="one that never works"),
    ],
)
def test_a_role_starts_again_at_once_if_it_has_worked(
    worked_for_s: list[float], pauses_s: list[float]
) -> None:
    backoff, found = Backoff(RESTARTS), []
    for lasted_s in worked_for_s:
        backoff, pause_s = backoff.failed(lasted_s)
        found.append(pause_s)
    assert found == pauses_s
