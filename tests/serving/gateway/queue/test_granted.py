"""What is counted of tickets that a replica has."""

from __future__ import annotations

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.baseline import ENOUGH
from hotplate.serving.gateway.queue.fairness import FairQueue
from hotplate.serving.gateway.queue.granted import SLOW_BODY, Granted
from hotplate.serving.gateway.queue.replica_slots import Replica, Slots
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import ENDED, RUNNING, Ticket


class Recorder:
    """A slot recorder that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []

    def take(self, replica: Replica, now: float) -> None:
        self.told.append((replica.id, now))

    def release(self, replica: Replica, service_s: float) -> None:
        self.told.append((replica.id, -service_s))


class Running:
    """A replica whose number of slots is learnt, and what runs on it."""

    def __init__(self, slots: int = 4) -> None:
        self.slots, self.recorder = Slots(), Recorder()
        self.slots.update([ReplicaRoute("a", "127.0.0.1:1", slots, learns=True)])
        (self.replica,) = self.slots.replicas
        self.queue: FairQueue[str] = FairQueue(ServiceTime())
        self.granted = Granted(self.slots, self.queue)
        self.granted.slot_recorder = self.recorder

    def grant(self, now: float = 10.0) -> Ticket[str]:
        ticket = Ticket("", 0.0, 60.0, 60.0)
        replica = self.slots.take()
        assert replica is not None
        self.granted.grant(ticket, replica, now)
        return ticket

    def wait(self) -> None:
        """A ticket waits."""
        ticket = Ticket("", 0.0, 60.0, 60.0)
        ticket.number, ticket.ends_at = 2, 60.0
        self.queue.join(ticket)


def test_the_oldest_is_the_one_that_was_granted_first_and_has_not_ended() -> None:
    running = Running()
    granted = running.granted
    assert granted.oldest_at is None
    first, second, third = running.grant(10.0), running.grant(11.0), running.grant(12.0)
    assert granted.oldest_at == 10.0
    granted.free(second, 13.0, typical=True)
    assert granted.oldest_at == 10.0
    granted.free(first, 14.0, typical=False)
    assert granted.oldest_at == 12.0
    granted.free(third, 15.0, typical=True)
    assert granted.oldest_at is None


def test_a_ticket_without_a_slot_has_no_age() -> None:
    running = Running()
    running.granted.grant_without_slot(Ticket("", 0.0, 60.0, 60.0), running.replica, 10.0)
    assert running.granted.oldest_at is None


def test_a_slot_is_counted_while_a_ticket_has_it() -> None:
    running = Running()
    granted = running.granted
    assert (granted.count, granted.in_flight) == (0, 0)
    first, second = running.grant(), running.grant(11.0)
    assert (first.state, first.replica, first.granted_at) == (RUNNING, running.replica, 10.0)
    assert (granted.count, granted.in_flight, running.replica.taken) == (2, 2, 2)
    granted.free(first, 14.0, typical=True)
    assert first.state == ENDED
    assert (granted.count, granted.in_flight, running.replica.taken) == (1, 1, 1)
    granted.free(second, 15.0, typical=False)
    assert running.recorder.told == [("a", 10.0), ("a", 11.0), ("a", -4.0), ("a", 0.0)]


def test_a_ticket_without_a_slot_takes_none() -> None:
    running = Running()
    ticket = Ticket("", 0.0, 60.0, 60.0, needs_slot=False)
    running.granted.grant_without_slot(ticket, running.replica, 10.0)
    assert (ticket.state, ticket.replica, ticket.granted_at) == (RUNNING, running.replica, 10.0)
    assert (running.granted.count, running.granted.in_flight) == (1, 0)
    running.granted.free(ticket, 11.0, typical=True)
    assert (ticket.state, running.granted.count, running.granted.in_flight) == (ENDED, 0, 0)
    assert running.replica.taken == 0
    assert running.recorder.told == []


def test_a_slot_that_no_ticket_gets_comes_back() -> None:
    running = Running()
    replica = running.slots.take()
    assert replica is not None
    running.granted.release_unused(replica, 1.0)
    assert replica.taken == 0
    assert running.recorder.told == [("a", 0.0)]


def test_a_response_that_has_begun_is_counted_until_it_ends() -> None:
    running = Running()
    begun, silent = running.grant(), running.grant()
    begun.response_began_at, running.replica.responding = 11.0, 1
    running.granted.free(silent, 12.0, typical=True)
    assert running.replica.responding == 1
    running.granted.free(begun, 12.0, typical=True)
    assert running.replica.responding == 0


@pytest.mark.parametrize(
    ("body_s", "is_sample", "typical", "waits", "learns"),
    [
        (0.0, True, True, True, True),
        (10.0 * SLOW_BODY, True, True, True, True),
        (10.0 * SLOW_BODY + 0.1, True, True, True, False),
        (0.0, False, True, True, False),
        (0.0, True, False, True, False),
        (0.0, True, True, False, False),
    ],
)
def test_a_limit_learns_of_typical_requests_whose_callers_were_not_slow(
    body_s: float, is_sample: bool, typical: bool, waits: bool, learns: bool
) -> None:
    """A replica of one slot tries two as soon as it knows one, if others wait."""
    running = Running(slots=1)
    if waits:
        running.wait()
    for began_at in range(0, 30 * ENOUGH, 10):
        ticket = running.grant(began_at)
        ticket.body_received_at, ticket.is_sample = began_at + body_s, is_sample
        running.granted.free(ticket, began_at + 10.0, typical=typical)
    assert running.replica.concurrency == (2 if learns else 1)


def test_a_limit_knows_for_how_long_each_ticket_had_its_slot() -> None:
    running = Running(slots=1)
    running.wait()
    for began_at in range(0, 2 * ENOUGH, 2):
        running.granted.free(running.grant(began_at), began_at + 2.0, typical=True)
    limit = running.replica.adaptive
    assert limit is not None
    assert not limit.grow_if_stalled(2 * ENOUGH + 7.9), "that is not four times as long"
    assert limit.grow_if_stalled(2 * ENOUGH + 8.1)


def test_a_replica_is_busy_from_its_first_taken_slot_to_its_last() -> None:
    running = Running()
    replica = running.replica
    first, second = running.grant(10.0), running.grant(11.0)
    running.granted.free(first, 13.0, typical=True)
    assert replica.take_busy_s(14.0) == 4.0
    assert replica.take_busy_s(15.0) == 1.0, "it goes on"
    running.granted.free(second, 17.0, typical=True)
    assert replica.take_busy_s(30.0) == 2.0
    assert replica.take_busy_s(31.0) == 0.0
