"""A route's queue, its replicas and its timer: carries out what the queue decides.

    submit ──► waits ──► granted ──► release          its response has ended
                 │          ├──────► retry            its replica did not serve it: it goes first
                 │          └──────► withdraw         nothing of it was sent, or its caller has gone
                 └──► fail                            the queue refused it, or its time is over

The queue decides and has no I/O (`queue/discipline.py`). The dispatcher sends and refuses requests,
and passes failures of replicas and the time on to the queue. It knows what waits as a `Waiter`
only: a caller's exchange and a task are alike.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Final

from hotplate.serving.gateway.errors import GatewayError, RouteClosed, RouteRefused
from hotplate.serving.gateway.fleet.connection_backup import ConnectionBackup
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.routes import Change, Route
from hotplate.serving.gateway.proxy.alarm import Alarm
from hotplate.serving.gateway.proxy.refusals import RefusalLog, refusal
from hotplate.serving.gateway.queue.changes import NOTHING, Changes, End
from hotplate.serving.gateway.queue.discipline import SlotQueue
from hotplate.serving.gateway.queue.ticket import ENDED, WAITING, Ticket
from hotplate.serving.gateway.replicas.call import Waiter
from hotplate.serving.gateway.replicas.connection_pool import ConnectionPool
from hotplate.serving.gateway.replicas.connection_pools import ConnectionPools
from hotplate.serving.gateway.telemetry.counters import RouteCounters

log = logging.getLogger(__name__)

COUNTS: Final = Change.COUNTS
BEGAN: Final = Change.BEGAN
DRAINED: Final = Change.DRAINED
"""These are looked up once, because access to a member of an enum is slow."""


class SlotWatcher:
    """The route to which a dispatcher belongs; it learns that a slot may be free."""

    def slot_freed(self) -> None:
        raise NotImplementedError


class Dispatcher:
    """The queue of one route, and the slots of its replicas."""

    def __init__(
        self,
        route: Route,
        limits: Limits,
        *,
        watcher: SlotWatcher,
        changed: Callable[[Change], None],
        backup: ConnectionBackup | None,
    ) -> None:
        """`changed` is called when the demand is no longer what was last read. `backup` is for the
        next owner, if there may be one."""
        self.route = route
        """The route's current configuration."""
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.counters = RouteCounters()
        self.queue: SlotQueue[Waiter] = SlotQueue(
            route.queue_limit, route.queue_limit_bytes, now=self.loop.time()
        )
        self.closing = False
        """It takes no new requests."""
        self._hands_back = False
        """Requests that lose their place while it closes are submitted again, to another route."""
        self.refused = 0
        """Requests that the queue refused or gave up."""
        self._changed = changed
        self._peak = 0
        """The most requests at once since the demand was last read."""
        self._notified = False
        """Whether `changed` was called since the demand was last read."""
        self._watcher = watcher
        self._refusal_log = RefusalLog()
        self._pools = ConnectionPools(limits, self.replica_changed, backup)
        self._deadlines = Alarm(self._on_timer)

    # The route

    def follow(self, route: Route) -> None:
        """Follows a new configuration, without ending what is running."""
        turned = route.relayed != self.route.relayed
        counted = self.queue.ready and not self.route.relayed
        if route.tasks_apart and not self.route.tasks_apart:
            self._withdraw_tasks()
        waiting = self.queue.waiting.clear() if turned else ()
        self.route = route
        self.closing = self._hands_back = False
        self.queue.set_limits(route.queue_limit, route.queue_limit_bytes, dict(route.weights))
        self._follow_replicas()
        for ticket in waiting:  # another gateway decides from now on, and on other terms
            ticket.waiter.ticket = None
            ticket.waiter.resubmit(ticket.ends_at if counted else inf)
        if turned:
            self.changed(BEGAN)
        if route.refuse:
            self._refuse_waiting(lambda: RouteRefused(route.refuse))

    def close(self, message: str) -> None:
        """Takes no new requests and refuses those that wait; those that run go on."""
        self.closing = True
        self._refuse_waiting(lambda: RouteClosed(message, retry_after_s=1))

    def hand_back(self) -> None:
        """Takes no new requests and has those that wait submitted again, which finds another route
        for them; those that run go on."""
        self.closing = self._hands_back = True
        for ticket in self.queue.waiting.clear():
            ticket.waiter.ticket = None
            ticket.waiter.resubmit(ticket.ends_at if self.queue.ready else inf)

    def stop(self) -> None:
        """Closes every idle connection, and stops the timer."""
        self._pools.keep(())
        self._deadlines.cancel()

    def pool(self, replica_id: str) -> ConnectionPool | None:
        """The connections to a replica of the route, or to its owner's address; None = there is no
        such one."""
        return self._pools.find(replica_id)

    # The demand

    def changed(self, change: Change) -> None:
        """The demand has changed."""
        if not self._notified or change is not COUNTS:
            self._notified = True
            self._changed(change)

    def read_peak(self) -> int:
        """The most requests in flight and queued at once since the last call. The demand is being
        read now, so its next change will be reported."""
        self._notified = False
        peak, self._peak = self._peak, self.queue.in_flight + self.queue.queued
        return peak

    # What waits for a slot

    def submit(self, ticket: Ticket[Waiter], now: float) -> None:
        """A caller's request gets a slot, or waits for one."""
        queue = self.queue
        first = not queue.in_flight and not queue.queued
        changes = queue.submit(ticket, now)
        self._deadlines.set(ticket.ends_at)
        if ticket.state == WAITING:
            self._set_timer()
        if changes is not NOTHING:
            self._carry_out(changes, now)
        self._note_demand(first=first)

    def submit_task(self, task: Waiter, organization: str, priority: int) -> bool:
        """A task waits for a slot, without a time limit; False = this route takes none, or none
        now."""
        route = self.route
        if self.closing or route.refuse or route.relayed or route.tasks_apart:
            return False
        queue, now = self.queue, self.loop.time()
        ticket: Ticket[Waiter] = Ticket(
            task, now, inf, inf, organization=organization, priority=priority
        )
        first = not queue.in_flight and not queue.queued
        task.ticket = ticket
        granted, ended = queue.submit(ticket, now)
        self._carry_out(Changes(granted, [each for each in ended if each[0] is not ticket]), now)
        if ticket.state == ENDED:
            task.ticket = None
            return False
        self._note_demand(first=first)
        return True

    def body_grew(self, waiter: Waiter, size_bytes: int) -> None:
        """More of a waiting request's body has come."""
        assert waiter.ticket is not None
        self._carry_out(self.queue.waiting.grow(waiter.ticket, size_bytes), self.loop.time())

    def response_began(self, waiter: Waiter) -> None:
        """The waiter's response has begun, or it has become a tunnel; no time limit applies from
        now on."""
        if waiter.ticket is not None:
            self.queue.response_began(waiter.ticket, self.loop.time())

    def release(self, waiter: Waiter, now: float) -> None:
        """The replica is done with the waiter's request: its slot is free."""
        ticket, waiter.ticket = waiter.ticket, None
        if ticket is None:
            return
        ticket.is_sample = ticket.expired or waiter.is_sample
        changes = self.queue.release(ticket, now)
        if changes is not NOTHING:
            self._carry_out(changes, now)
        self._slot_freed(ticket)

    def withdraw(self, waiter: Waiter) -> None:
        """The waiter's request ends before anything of it was sent, or its slot is given up."""
        ticket, waiter.ticket = waiter.ticket, None
        if ticket is None:
            return
        if ticket.replica is None:
            self.queue.waiting.cancel(ticket)
            self.changed(COUNTS)
        else:
            now = self.loop.time()
            self._carry_out(self.queue.withdraw(ticket, now), now)
            self._slot_freed(ticket)

    def retry(self, waiter: Waiter) -> None:
        """The request may be sent again, to any replica: it becomes first in line."""
        ticket = waiter.ticket
        assert ticket is not None and ticket.replica is not None
        if self._hands_back:
            self.withdraw(waiter)
            waiter.resubmit(ticket.ends_at)
            return
        if self.closing:
            waiter.fail(RouteClosed(f"{self.route.name} is no longer served."))
            return
        self.counters.repeats += 1
        now = self.loop.time()
        if waiter.relayed != self.route.relayed:
            self.withdraw(waiter)
            waiter.resubmit(inf if waiter.relayed else ticket.ends_at)
            return
        ticket.size_bytes = waiter.size_bytes
        self._carry_out(self.queue.requeue(ticket, now), now)
        self._set_timer()
        self.changed(COUNTS)

    # Replicas

    def replica_changed(self, pool: ConnectionPool) -> None:
        """A replica was ejected, its ejection has another reason, or it was restored."""
        reason, was = pool.ejection.reason, self.queue.ejection_reason(pool.id)
        if reason:
            log.warning("%s: replica %s is ejected: %s", self.route.name, pool.id, reason)
            self.queue.eject(pool.id, reason)
        elif was:
            log.warning("%s: replica %s is no longer ejected", self.route.name, pool.id)
            now = self.loop.time()
            self._carry_out(self.queue.restore(pool.id, now), now)
            self.changed(COUNTS)

    # Inside

    def _note_demand(self, *, first: bool) -> None:
        """One more request waits or runs; `first`: there was none before."""
        total = self.queue.in_flight + self.queue.queued
        if total > self._peak:
            self._peak = total
        self.changed(BEGAN if first else COUNTS)

    def _follow_replicas(self) -> None:
        self._pools.follow(self.route)
        now = self.loop.time()
        self._carry_out(self.queue.set_replicas(self.route.replicas, now), now)
        self._pools.keep({replica.id for replica in self.queue.replicas})
        self._set_timer()

    def _carry_out(self, changes: Changes[Waiter], now: float) -> None:
        """Carries out what the queue has decided."""
        for ticket in changes.granted:
            self._send(ticket, now)
        for ticket, end in changes.ended:
            if end is not End.RUNNING:
                self.refused += 1
                ticket.waiter.ticket = None
            if end is End.PUSHED_OUT:
                self.counters.pushed_out += 1
            error = refusal(self.route, self.queue, ticket, end, now)
            if line := self._refusal_log.sentence(error, now):
                log.warning(line)
            ticket.waiter.fail(error)

    def _send(self, ticket: Ticket[Waiter], now: float) -> None:
        assert ticket.replica is not None
        if ticket.needs_slot:
            self.counters.waited(now - ticket.arrived_at)
        ticket.waiter.granted(self._pools.of(ticket.replica.id), now)

    def _slot_freed(self, ticket: Ticket[Waiter]) -> None:
        replica = ticket.replica
        assert replica is not None
        drained = replica.draining and not replica.taken
        if drained and replica.gone:  # unless another of that id has come since
            self._pools.keep({each.id for each in self.queue.replicas})
        self.changed(DRAINED if drained else COUNTS)
        self._watcher.slot_freed()

    def _withdraw_tasks(self) -> None:
        """Tasks have slots of their own from now on: none of them waits here any longer."""
        for ticket in list(self.queue.waiting):
            if ticket.waiter.is_task:
                self.withdraw(ticket.waiter)
                ticket.waiter.resubmit(inf)

    def _refuse_waiting(self, make_error: Callable[[], GatewayError]) -> None:
        for ticket in self.queue.waiting.clear():
            self.refused += 1
            ticket.waiter.ticket = None
            ticket.waiter.fail(make_error())

    def _set_timer(self) -> None:
        due = min(self.queue.next_event_at() or inf, self.queue.stalls_at(self.loop.time()))
        if due < inf:
            self._deadlines.set(due)

    def _on_timer(self) -> None:
        now = self.loop.time()
        changes = self.queue.advance(now)
        self._carry_out(changes, now)
        if changes.ended or changes.granted:
            self.changed(COUNTS)
        self._set_timer()
