"""What is counted of tickets that a replica has."""

from __future__ import annotations

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.adaptive_limit import AdaptiveLimit, Mark
from hotplate.serving.gateway.queue.fairness import FairQueue
from hotplate.serving.gateway.queue.granted import SLOW_BODY, Granted
from hotplate.serving.gateway.queue.replica_slots import Replica, Slots
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import ENDED, RUNNING, Ticket


class Recording(AdaptiveLimit):
    """A limit that keeps what it was given."""

    def __init__(self) -> None:
        super().__init__(4)
        self.given: list[tuple[str, float, bool]] = []

    def end(self, begun_at: float, mark: Mark, now: float, *, waiting: bool) -> None:
        super().end(begun_at, mark, now, waiting=waiting)
        self.given.append(("end", now - begun_at, waiting))

    def drop(self, begun_at: float, mark: Mark, now: float, *, waiting: bool) -> None:
        super().drop(begun_at, mark, now, waiting=waiting)
        self.given.append(("drop", now - begun_at, waiting))


class Recorder:
    """A slot recorder that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []

    def take(self, replica: Replica, now: float) -> None:
        self.told.append((replica.id, now))

    def release(self, replica: Replica, service_s: float) -> None:
        self.told.append((replica.id, -service_s))


class Running:
    """A replica of four slots, and what runs on it."""

    def __init__(self) -> None:
        self.slots, self.limit, self.recorder = Slots(), Recording(), Recorder()
        self.slots.update([ReplicaRoute("a", "127.0.0.1:1", 4, learns=True)])
        (self.replica,) = self.slots.replicas
        self.replica.adaptive = self.limit
        self.queue: FairQueue[str] = FairQueue(ServiceTime())
        self.granted = Granted(self.slots, self.queue)
        self.granted.slot_recorder = self.recorder

    def grant(self, now: float = 10.0) -> Ticket[str]:
        ticket = Ticket("", 0.0, 60.0, 60.0)
        replica = self.slots.take()
        assert replica is not None
        self.granted.grant(ticket, replica, now)
        return ticket


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
    assert running.limit.given == [("end", 4.0, False), ("drop", 4.0, False)]


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
    running.granted.release_unused(replica)
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
    ("body_s", "is_sample", "typical", "waits", "how"),
    [
        (0.0, True, True, False, "end"),
        (10.0 * SLOW_BODY, True, True, False, "end"),
        (10.0 * SLOW_BODY + 0.1, True, True, False, "drop"),
        (0.0, False, True, False, "drop"),
        (0.0, True, False, True, "drop"),
        (0.0, True, True, True, "end"),
    ],
)
def test_a_limit_learns_of_typical_requests_whose_callers_were_not_slow(
    body_s: float, is_sample: bool, typical: bool, waits: bool, how: str
) -> None:
    running = Running()
    ticket = running.grant(10.0)
    ticket.body_received_at, ticket.is_sample = 10.0 + body_s, is_sample
    if waits:
        other = Ticket("", 0.0, 60.0, 60.0)
        other.number, other.ends_at = 2, 60.0
        running.queue.join(other)
    running.granted.free(ticket, 20.0, typical=typical)
    assert running.limit.given == [(how, 10.0, waits)]
