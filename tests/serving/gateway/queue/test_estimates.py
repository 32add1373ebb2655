"""When a request gets its slot, as far as is known, and when a refused one should come again."""

from __future__ import annotations

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.deadlines import Deadlines
from hotplate.serving.gateway.queue.estimates import Estimates
from hotplate.serving.gateway.queue.fairness import FairQueue
from hotplate.serving.gateway.queue.overflow import Overflow
from hotplate.serving.gateway.queue.replica_slots import Slots
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import Ticket
from hotplate.serving.gateway.queue.waiting import Waiting


class Queue:
    """What a route's estimates are made from."""

    def __init__(self) -> None:
        self.slots, self.service = Slots(), ServiceTime()
        self.fair_queue: FairQueue[str] = FairQueue(self.service)
        overflow = Overflow(self.fair_queue, 100, 1000)
        self.waiting = Waiting(self.slots, self.fair_queue, overflow, Deadlines(), now=0.0)
        self.estimates = Estimates(self.slots, self.fair_queue, self.waiting, self.service)
        self.joined = 0

    def join(self, now: float) -> Ticket[str]:
        ticket = Ticket("", now, 60.0, 600.0)
        self.joined += 1
        ticket.number, ticket.ends_at = self.joined, now + 60.0
        self.waiting.join(ticket, now)
        return ticket

    def open(self, slots: int, now: float) -> None:
        self.slots.update([ReplicaRoute("a", "127.0.0.1:1", slots)])
        self.waiting.restart_clocks(now)

    def close(self, now: float) -> None:
        self.slots.update([])
        self.waiting.restart_clocks(now)


def test_before_the_first_replica_the_latest_cold_start_is_expected_again() -> None:
    queue = Queue()
    assert queue.estimates.start_s(0, 0.0) is None
    assert queue.estimates.retry_after_s(0.0) == 0.0
    queue.join(1.0)
    queue.join(2.0)
    assert queue.estimates.start_s(0, 3.0) is None, "no cold start was seen"
    queue.open(1, 11.0)
    assert queue.waiting.cold_start_s == 10.0
    queue.waiting.clear()
    queue.close(20.0)
    assert queue.estimates.start_s(0, 25.0) == 10.0, "nobody waits"
    queue.join(30.0)
    for now, start_s in ((30.0, 10.0), (34.0, 6.0), (40.0, 0.0), (50.0, 0.0)):
        assert queue.estimates.start_s(5, now) == start_s
        assert queue.estimates.retry_after_s(now) == start_s


@pytest.mark.parametrize(("ahead", "start_s"), [(0, 0.5), (1, 1.5), (3, 3.5)])
def test_behind_others_a_request_waits_for_their_mean_time(ahead: int, start_s: float) -> None:
    queue = Queue()
    queue.service.learn(2.0, 2.0, 0.0)
    queue.open(2, 0.0)
    assert queue.estimates.start_s(0, 0.0) == 0.0, "a slot is free"
    assert queue.estimates.retry_after_s(0.0) == 0.0
    for _ in range(4):
        queue.join(0.0)
    assert queue.estimates.start_s(ahead, 0.0) == pytest.approx(start_s)
    assert queue.estimates.retry_after_s(0.0) == pytest.approx(4.0)
    queue.waiting.clear()
    while queue.slots.take() is not None:
        pass
    assert queue.estimates.start_s(ahead, 0.0) == pytest.approx(start_s)
