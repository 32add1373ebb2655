"""The events of a `Walk`: chosen and shrunk by hypothesis, or at random."""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.gateway.queue_walk import Walk

INDEX = st.integers(0, 50)


class QueueMachine(RuleBasedStateMachine):
    """A walk, step by step."""

    steps = 0
    """Of all machines together."""

    def __init__(self) -> None:
        super().__init__()
        self.walk = Walk()

    @rule(
        size=st.integers(0, 30),
        slot=st.booleans(),
        organization=st.integers(0, 3),
        priority=st.integers(0, 7),
        timeout=st.integers(0, 2),
    )
    def submit(self, size: int, slot: bool, organization: int, priority: int, timeout: int) -> None:
        self.walk.submit(size, slot, organization, priority, timeout)

    @rule(index=INDEX, size=st.integers(0, 10))
    def grow(self, index: int, size: int) -> None:
        self.walk.grow(index, size)

    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        self.walk.cancel(index)

    @rule(index=INDEX)
    def answer(self, index: int) -> None:
        self.walk.answer(index)

    @rule(index=INDEX)
    def release(self, index: int) -> None:
        self.walk.release(index)

    @rule(index=INDEX)
    def withdraw(self, index: int) -> None:
        self.walk.withdraw(index)

    @rule(index=INDEX)
    def requeue(self, index: int) -> None:
        self.walk.requeue(index)

    @rule(
        index=st.integers(0, 3),
        concurrency=st.integers(0, 3),
        draining=st.booleans(),
        foreign=st.integers(0, 1),
    )
    def set_replica(self, index: int, concurrency: int, draining: bool, foreign: int) -> None:
        self.walk.set_replica(index, concurrency, draining, foreign)

    @rule(seconds=st.sampled_from((0.1, 0.5, 1.0, 6.0, 61.0)))
    def advance(self, seconds: float) -> None:
        self.walk.advance(seconds)

    @invariant()
    def holds(self) -> None:
        # Time may have let a replica back in; the gateway's clock rings for that.
        self.walk.advance(0.0)
        self.walk.check()
        QueueMachine.steps += 1


def wander(walk: Walk, rng: random.Random, steps: int) -> None:
    """So many random events, mostly of requests that come and go."""
    for _ in range(steps):
        step = rng.randrange(24)
        index = rng.randrange(100)
        if step < 8:
            slot = rng.random() < 0.85
            walk.submit(rng.randrange(5), slot, index, rng.choice((1, 3, 3, 3, 6)), index)
        elif step < 14:
            walk.release(index)
        elif step == 14:
            walk.answer(index)
        elif step == 15:
            walk.grow(index, rng.randrange(4))
        elif step < 18:
            walk.cancel(index)
        elif step == 18:
            walk.requeue(index)
        elif step == 19:
            walk.withdraw(index)
        elif step == 20:
            draining, foreign = rng.random() < 0.2, rng.randrange(2)
            walk.set_replica(index % 4, rng.randrange(4), draining, foreign)
        else:
            walk.advance(rng.choice((0.05, 0.05, 0.1, 0.3, 1.0, 30.0 if step == 23 else 0.1)))
        walk.advance(0.0)
        walk.check()
