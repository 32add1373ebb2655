from __future__ import annotations

import random

from hypothesis import settings

from tests.support.gateway.queue_machine import QueueMachine, wander
from tests.support.gateway.queue_walk import Walk

TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=40, stateful_step_count=40)


def test_a_long_random_walk_loses_nothing_and_leaks_nothing() -> None:
    walk = Walk()
    wander(walk, random.Random(7), 4000)
    for how in ("granted", "released", "left", "share_full", "pushed_out", "no_capacity"):
        assert walk.ends[how], f"no ticket was {how}"
    for how in ("no_replica", "waiting", "running", "requeued", "withdrawn"):
        assert walk.ends[how], f"no ticket ended so: {how}"
    while walk.running:
        walk.release(0)
        walk.check()
    assert walk.queue.in_flight == 0
