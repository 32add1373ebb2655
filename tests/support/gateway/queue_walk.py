"""Random events on one queue beside a simple model of it, and what must hold after each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.changes import Changes, End
from hotplate.serving.gateway.queue.discipline import SlotQueue
from hotplate.serving.gateway.queue.ticket import RUNNING, STARVING_S, Ticket

LIMIT, LIMIT_BYTES = 20, 60
TIMEOUTS_S = (1.0, 5.0, 60.0)
HOLD_S = 5.0
ORGANIZATIONS = ("", "a", "b", "c")
WEIGHTS = {"a": 3.0, "b": 0.5}


class Walk:
    """One queue and everything that is known to be in it."""

    def __init__(self) -> None:
        self.queue: SlotQueue[int] = SlotQueue(LIMIT, LIMIT_BYTES, now=0.0)
        self.queue.set_limits(LIMIT, LIMIT_BYTES, WEIGHTS)
        self.now = 0.0
        self.steps = 0
        self.ends: Counter[str] = Counter()
        """How tickets have ended, so that a test can see that it happened."""
        self.waiting: dict[Ticket[int], None] = {}
        self.running: dict[Ticket[int], None] = {}
        self.requeued: set[Ticket[int]] = set()
        """Of the waiting ones, those that were requeued."""
        self.table: dict[str, ReplicaRoute] = {}

    # Events

    def submit(self, size: int, slot: bool, organization: int, priority: int, timeout: int) -> None:
        ticket = Ticket(
            self.steps,
            arrived_at=self.now,
            timeout_s=TIMEOUTS_S[timeout % len(TIMEOUTS_S)],
            hold_s=HOLD_S,
            size_bytes=size,
            needs_slot=slot,
            organization=ORGANIZATIONS[organization % len(ORGANIZATIONS)],
            priority=priority,
        )
        self.waiting[ticket] = None
        self._follow(self.queue.submit(ticket, self.now))

    def grow(self, index: int, size: int) -> None:
        if self.waiting:
            self._follow(self.queue.waiting.grow(pick(list(self.waiting), index), size))

    def cancel(self, index: int) -> None:
        if self.waiting:
            ticket = pick(list(self.waiting), index)
            self._end(ticket, "left")
            self.queue.waiting.cancel(ticket)

    def answer(self, index: int) -> None:
        if self.running:
            ticket = pick(list(self.running), index)
            if not ticket.expired and not ticket.response_began_at:
                self.queue.response_began(ticket, self.now)

    def release(self, index: int) -> None:
        if self.running:
            self._follow(self.queue.release(self._stop(index, "released"), self.now))

    def withdraw(self, index: int) -> None:
        if self.running:
            self._follow(self.queue.withdraw(self._stop(index, "withdrawn"), self.now))

    def requeue(self, index: int) -> None:
        fresh = [t for t in self.running if not t.expired and not t.response_began_at]
        if fresh:
            ticket = pick(fresh, index)
            del self.running[ticket]
            self.waiting[ticket] = None
            self.requeued.add(ticket)
            self.ends["requeued"] += 1
            self._follow(self.queue.requeue(ticket, self.now))

    def set_replica(self, index: int, concurrency: int, draining: bool, foreign: int) -> None:
        name = f"r{index}"
        if concurrency:
            self.table[name] = ReplicaRoute(name, "h:1", concurrency, draining, foreign)
        else:
            self.table.pop(name, None)
        self._follow(self.queue.set_replicas(self.table.values(), self.now))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self._follow(self.queue.advance(self.now))

    # What must hold

    def check(self) -> None:
        self.steps += 1
        queue = self.queue
        slotted = [ticket for ticket in self.running if ticket.needs_slot]
        assert queue.in_flight == len(slotted), "a slot leaked"
        mine = Counter(ticket.replica for ticket in slotted)
        for replica in queue.replicas:
            assert replica.taken == mine[replica], "a replica's count is wrong"
            assert not replica.gone or replica.taken, "an empty replica was not forgotten"
        assert sum(replica.taken for replica in queue.replicas) == len(slotted)
        assert sorted(t.number for t in queue.waiting) == sorted(t.number for t in self.waiting)
        assert queue.queued == len(self.waiting)
        assert queue.queued_bytes == sum(ticket.size_bytes for ticket in self.waiting)
        assert queue.idle == (not self.waiting and not self.running)
        self._check_nobody_waits_beside_a_free_slot()
        self._check_shares()
        due = queue.next_event_at()
        ends = [t.ends_at for t in self.waiting]
        assert not ends or (due is not None and due <= min(ends)), "a deadline would pass unseen"

    def _check_nobody_waits_beside_a_free_slot(self) -> None:
        takers = [r for r in self.queue.replicas if r.open and not r.ejection_reason]
        if any(ticket.needs_slot for ticket in self.waiting):
            assert all(r.free <= 0 for r in takers), "a request waits beside a free slot"
        if any(not ticket.needs_slot for ticket in self.waiting):
            assert not takers, "what needs no slot waits"

    def _check_shares(self) -> None:
        line = self.queue.fair_queue
        in_order = [t for t in self.waiting if t.needs_slot and t not in self.requeued]
        queued = Counter(ticket.organization for ticket in in_order)
        running = Counter(ticket.organization for ticket in self.running if ticket.needs_slot)
        known = {flow.name: flow for flow in line.flows}
        assert set(known) == set(queued) | set(running), "an organization leaked"
        for name, flow in known.items():
            assert (flow.queue.count, flow.running) == (queued[name], running[name])
        assert {flow.name for flow in line.waiting} == set(queued)
        weights = sum(flow.weight for flow in line.waiting)
        assert abs(line.waiting_weight - weights) < 1e-6

    # Inside

    def _stop(self, index: int, how: str) -> Ticket[int]:
        """One that runs no longer."""
        ticket = pick(list(self.running), index)
        del self.running[ticket]
        self.ends[how] += 1
        return ticket

    def _follow(self, changes: Changes[int]) -> None:
        for ticket, end in changes.ended:
            if end is End.RUNNING:
                assert ticket in self.running and ticket.ends_at <= self.now
                self.ends["running"] += 1
            else:
                assert end is not End.WAITING or ticket.ends_at <= self.now
                self._end(ticket, end.value)
        for ticket in changes.granted:
            self._check_turn(ticket)
            self._end(ticket, "granted")
            assert ticket.state == RUNNING
            self.running[ticket] = None
        for replica in self.queue.replicas:
            got = any(ticket.replica is replica and ticket.needs_slot for ticket in changes.granted)
            taken = replica.taken + replica.taken_elsewhere
            assert not got or taken <= replica.concurrency, "more than its slots"

    def _check_turn(self, ticket: Ticket[int]) -> None:
        if not ticket.needs_slot or ticket in self.requeued:
            return
        assert not any(t.needs_slot for t in self.requeued), "a requeued one goes first"
        for other in self.waiting:
            if other.needs_slot and other.organization == ticket.organization:
                if ticket.number < other.number and self.now - ticket.arrived_at > STARVING_S:
                    continue  # it may have waited longest
                mine = (ticket.priority, ticket.ends_at, ticket.number)
                theirs = (other.priority, other.ends_at, other.number)
                assert mine <= theirs, "another of its organization was before it"

    def _end(self, ticket: Ticket[int], how: str) -> None:
        assert ticket in self.waiting, f"a ticket that does not wait was {how}"
        del self.waiting[ticket]
        self.requeued.discard(ticket)
        self.ends[how] += 1


def pick(tickets: Sequence[Ticket[int]], index: int) -> Ticket[int]:
    return tickets[index % len(tickets)]
