from __future__ import annotations

import json
from typing import Any

import pytest

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.policy import Cause, Demand, Policy, Replicas
from hotplate.autoscaler.rules.headroom import SIZE, Headroom
from hotplate.autoscaler.rules.useful_start import StartPace
from tests.autoscaler.deciding import IDLE, after, decided

SERVICE_S = 60.0
ONE, TWO = Demand(1, 0, SERVICE_S), Demand(2, 0, SERVICE_S)


def used(policy: Policy, *, rises: bool) -> tuple[Decider, float]:
    """A decider whose demand rose to one, and 25 s later to two or back to none, ten times."""
    decider, now = Decider(policy, now=0.0), 0.0
    decider.record_cold_start(20.0)
    for _ in range(10):
        after(decider, ONE, 2, now)
        after(decider, TWO if rises else IDLE, 2, now + 25.0)
        after(decider, IDLE, 2, now + 90.0)
        now += 7200.0
    after(decider, IDLE, 0, now)
    return decider, now


def test_where_a_second_request_usually_follows_its_replica_starts_with_the_first() -> None:
    decider, now = used(Policy(0, 5), rises=True)
    decision = decided(decider, ONE, Replicas(1), now + 1.0)
    assert (decision.desired, decision.cause, decision.kept) == (2, Cause.HEADROOM, 1)
    assert decision.reason.startswith(
        "1 of 2: demand usually rises further, so one more replica is kept ready for another "
    )
    assert decision.next_at is not None
    assert decided(decider, ONE, Replicas(1, (now,)), now + 2.0).desired == 2


def test_where_a_request_stays_alone_it_has_one_replica() -> None:
    for decider, now in (used(Policy(0, 5), rises=False), (Decider(Policy(0, 5), now=0.0), 0.0)):
        for second in range(300):
            assert decided(decider, ONE, Replicas(1), now + second).desired == 1


@pytest.mark.parametrize("ended", ["demand fell", "its time had passed"])
def test_after_unused_headroom_none_is_started_for_a_minute(ended: str) -> None:
    headroom, pace, now = Headroom(0.0, max_replicas=5), StartPace(1, SERVICE_S, 20.0), 0.0
    for _ in range(30):
        for level, after_s in ((1, 0.0), (2, 25.0), (0, 90.0)):
            headroom.set_demand(level, now + after_s)
            headroom.propose(2, pace, 600.0, now + after_s)
        now += 7200.0
    headroom.set_demand(1, now)
    begun = headroom.propose(1, pace, 600.0, now)
    assert begun.replicas == 2
    if ended == "demand fell":
        now += 5.0
    else:
        now = begun.next_at
        assert headroom.propose(1, pace, 600.0, now).replicas == 0
    headroom.set_demand(0, now)
    for later_s, live, replicas in ((10.0, 1, 0), (59.0, 1, 0), (61.0, 1, 2), (70.0, 2, 2)):
        headroom.set_demand(1, now + later_s)
        assert headroom.propose(live, pace, 600.0, now + later_s).replicas == replicas
        headroom.set_demand(0, now + later_s + 5.0)


def test_headroom_respects_max_replicas_and_how_the_user_scales() -> None:
    for policy in (Policy(0, 1), Policy(0, 5, scale_up_window_s=0.0), Policy(0, 5, price_gpu_s=0)):
        decider, now = used(policy, rises=True)
        assert decided(decider, ONE, Replicas(1), now + 1.0).desired == 1


def test_what_follows_is_remembered_by_the_next_revision() -> None:
    decider, now = used(Policy(0, 5), rises=True)
    memory = json.loads(json.dumps(decider.memory(now)))
    heir = Decider(Policy(0, 5), now=3.0, memory=memory)
    after(heir, IDLE, 0, 3.0)
    assert decided(heir, ONE, Replicas(1), 4.0).desired == 2


@pytest.mark.parametrize("data", [{"1": [1.0]}, {"x": [0.0] * 2 * SIZE}, {"1": [-1.0] * 2 * SIZE}])
def test_a_foreign_memory_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(MemoryInvalid, match="start without it"):
        Headroom.from_json(data, 0.0, 5)
