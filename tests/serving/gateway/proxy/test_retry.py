from __future__ import annotations

import pytest

from hotplate.serving.gateway.proxy.retry import (
    ANSWERED,
    SENDS,
    SENT,
    STARTED,
    UNSENT,
    why_not_again,
)
from hotplate.serving.gateway.replicas.ejection import LONGEST_PAUSE_S, Ejection


@pytest.mark.parametrize(
    ("phase", "may_run_twice", "may_go_again"),
    [
        (UNSENT, False, True),
        (SENT, False, True),
        (STARTED, False, False),
        (STARTED, True, True),
        (ANSWERED, True, False),
    ],
)
def test_a_request_goes_again_by_its_phase(
    phase: int, may_run_twice: bool, may_go_again: bool
) -> None:
    def why_not(sends: int = 1, *, kept: bool = True) -> str:
        return why_not_again(phase, may_run_twice=may_run_twice, sends=sends, kept=kept)

    assert (why_not() == "") is may_go_again
    assert why_not(SENDS), "a bounded number of times"
    assert why_not(kept=False), "only whole"


def test_a_replica_is_out_from_its_first_failure_until_a_try_goes_well() -> None:
    health = Ejection()
    assert health.fail("it died")
    assert not health.fail("it died with another request")
    pauses = [health.next_probe_s() for _ in range(8)]
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses[-1] == LONGEST_PAUSE_S
    health.probed("it refuses")
    assert health.reason == "it refuses"
    health.probed("")
    assert health.reason == ""
    assert health.fail("again")
    assert health.next_probe_s() == 0.1
