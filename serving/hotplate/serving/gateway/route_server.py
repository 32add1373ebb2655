"""One route being served: its listener, its queue, its replicas' connections, its clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Final

from hotplate.serving.gateway.admission.gate import admit_again
from hotplate.serving.gateway.admission.task_routes import DOCS_PATH
from hotplate.serving.gateway.admission.terms import Local, Terms
from hotplate.serving.gateway.callers.connections import Callers
from hotplate.serving.gateway.callers.downstream import Front
from hotplate.serving.gateway.callers.route_listener import Peers
from hotplate.serving.gateway.errors import (
    DeadlineExceeded,
    GatewayError,
    RouteClosed,
    RouteRefused,
)
from hotplate.serving.gateway.fleet.connection_backup import Bequest
from hotplate.serving.gateway.http1.head_cache import HeadCache
from hotplate.serving.gateway.http1.multipart import watch_of
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.routes import Change, Route, RouteDemand
from hotplate.serving.gateway.proxy.alarm import Alarm
from hotplate.serving.gateway.proxy.body_gate import Incoming
from hotplate.serving.gateway.proxy.exchange import Exchange
from hotplate.serving.gateway.proxy.forwarding import Sending
from hotplate.serving.gateway.proxy.hangups import Hangups
from hotplate.serving.gateway.queue.changes import NOTHING, Changes, End
from hotplate.serving.gateway.queue.discipline import SlotQueue
from hotplate.serving.gateway.queue.refusals import RefusalNews, refusal
from hotplate.serving.gateway.queue.ticket import ENDED, WAITING, Ticket
from hotplate.serving.gateway.replicas.call import Waiter
from hotplate.serving.gateway.replicas.connection_pool import Pool
from hotplate.serving.gateway.replicas.connection_pools import Pools
from hotplate.serving.gateway.telemetry.access_log import AccessLog
from hotplate.serving.gateway.telemetry.counters import RouteCounters

log = logging.getLogger(__name__)

COUNTS: Final = Change.COUNTS
BEGAN: Final = Change.BEGAN
DRAINED: Final = Change.DRAINED
"""Looked up once: a member of an enum costs more than a place in the queue."""

TaskExchanges = Callable[[Front, "RouteServer", RequestHead], Exchange | None]
"""Makes what moves a call of a task that the control plane keeps; None = the request is a call like
any other. It is asked only where the route has tasks, and of the page that documents them."""


class RouteServer:
    """Serves one route. `changed` is called when its demand is no longer what it was."""

    def __init__(
        self,
        route: Route,
        limits: Limits,
        changed: Callable[[Change], None],
        peers: Peers | None = None,
        access_log: AccessLog | None = None,
        bequest: Bequest | None = None,
    ) -> None:
        """`peers`: gateways that may listen where it does; `bequest`: for the next owner."""
        self.route = route
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.counters = RouteCounters()
        self.access_log = access_log
        self.task_exchanges: TaskExchanges | None = None
        """None = its tasks are with its replicas, like everything else."""
        self.queue: SlotQueue[Waiter] = SlotQueue(
            route.queue_limit, route.queue_limit_bytes, now=self.loop.time()
        )
        self.closing = False
        """It takes nothing new and ends when what is running has ended."""
        self._tell = changed
        self._peak = 0
        """The most requests that there were at once since the last report of demand."""
        self._told = False
        """The listener knows that the counts have changed and has not asked for them yet."""
        self._refused = 0
        self._news = RefusalNews()
        self.callers = Callers(
            self,
            ended=self._check_ended,
            error_changed=lambda: self.changed(COUNTS),
            peers=peers,
        )
        self.heads: HeadCache[RequestHead] = HeadCache()
        self._pools = Pools(limits, self._health_changed, bequest)
        self._deadlines = Alarm(self._ring)
        self.incoming = Incoming(self)
        self.hangups = Hangups(self, changed=lambda: self.changed(COUNTS))
        self._ended = asyncio.Event()

    # The table's orders

    def follow(self, route: Route) -> None:
        """Takes over new orders, but for where callers arrive, without cutting what is running."""
        turned = route.relayed != self.route.relayed
        counted = self.queue.ready and not self.route.relayed
        if route.tasks_apart and not self.route.tasks_apart:
            self._part_with_tasks()
        waiting = self.queue.clear() if turned else ()
        self.route = route
        self.closing = False
        self._ended.clear()
        self.queue.set_limits(route.queue_limit, route.queue_limit_bytes, dict(route.weights))
        self._follow_replicas()
        for ticket in waiting:  # here the terms are others, and so is who decides on them
            ticket.holder.ticket = None
            ticket.holder.enter_anew(ticket.ends_at if counted else inf)
        if turned:
            self.changed(BEGAN)
        self._check_ended()
        if route.refuse:
            self._refuse_waiting(lambda: RouteRefused(route.refuse))

    def stop(self, message: str) -> None:
        """Accepts nothing more and refuses what waits; `ended` tells when the rest is done."""
        self.closing = True
        self._refuse_waiting(lambda: RouteClosed(message, retry_after_s=1))
        self.callers.turn_out()
        self.changed(COUNTS)
        self._check_ended()

    @property
    def parting(self) -> bool:
        """Whether it is to have no callers any more."""
        return self.closing or self.callers.retiring

    async def ended(self) -> None:
        """Waits until a stopped route has nothing running and no caller is left."""
        await self._ended.wait()

    @property
    def is_over(self) -> bool:
        return self.closing and self._ended.is_set()

    def abandon(self) -> None:
        """Cuts what is still there."""
        self.callers.cut()
        self._let_everything_go()

    @property
    def error(self) -> str:
        """Why it is not listening."""
        return self.callers.listener.error

    def demand(self) -> RouteDemand:
        """What there is to do now; the listener is told of the next change after it."""
        self._told = False
        queue, peak = self.queue, self._peak
        self._peak = queue.in_flight + queue.queued
        return RouteDemand(
            peak=peak,
            in_flight=queue.in_flight + sum(replica.foreign for replica in queue.replicas),
            # A body that is waited for wakes a route that sleeps, as what is queued does.
            queued=queue.queued + int(self.incoming.any_waiting and not queue.ready),
            completed=queue.completed,
            refused=self._refused,
            service_s=queue.service.mean_s,
            busy={r.id: r.taken + r.foreign for r in queue.replicas if r.taken + r.foreign},
            learnt={r.id: r.adaptive.number for r in queue.replicas if r.adaptive is not None},
            abandoned=self.hangups.by_replica,
            error=self.error,
            owned=not self.route.relayed,
        )

    # Exchanges

    def exchange(self, front: Front, request: RequestHead) -> Exchange:
        """What moves the request."""
        exchange: Exchange | None = None
        kept = self.task_exchanges
        if kept is not None and (self.route.tasks or request.path.endswith(DOCS_PATH)):
            exchange = kept(front, self, request)
        exchange = exchange or Exchange(front, self, request)
        if request.content_type.startswith(b"multipart/") and not self.route.internal:
            exchange.parts = watch_of(request.value(b"content-type"))
        return exchange

    def begin(self, exchange: Exchange, now: float) -> None:
        """A request's turn on its connection has come."""
        exchange.relayed = self.route.relayed
        queue = self.queue
        exchange.begun_at = exchange.begun_at or now
        try:
            if exchange.refused is not None:
                raise exchange.refused
            if exchange.due_at <= now:
                raise DeadlineExceeded(f"{self.route.name}: no slot became free in time.")
            if self.closing:
                raise RouteClosed(f"{self.route.name} is not served any more.", retry_after_s=1)
            terms = self._admit(exchange)
        except GatewayError as error:
            exchange.fail(error)
            return
        if isinstance(terms, Local):
            self._answer_locally(exchange, terms)
            return
        if exchange.serve_elsewhere(terms, ready=queue.ready):
            return
        exchange.prefix = terms.prefix
        ticket: Ticket[Waiter] = Ticket(
            exchange,
            exchange.begun_at,
            min(terms.timeout_s, exchange.due_at - now),
            terms.hold_s,
            exchange.size_bytes,
            terms.needs_slot,
            terms.organization,
            terms.priority,
        )
        exchange.ticket = ticket
        if not exchange.request_done and exchange.request.has_body:
            self.incoming.entered(exchange)
        first = not queue.in_flight and not queue.queued
        changes = queue.submit(ticket, now)
        self._deadlines.set(ticket.ends_at)
        if ticket.place == WAITING:
            self.incoming.others_wait(now)
            self._rewatch()
        if changes is not NOTHING:
            self._take_up(changes, now)
        self.changed(BEGAN if first else COUNTS)

    def waits_for_body(self, exchange: Exchange) -> bool:
        """Whether a request whose body is not here is to wait for it: not where it is refused
        whatever comes, or goes for no slot."""
        try:
            terms = self._admit(exchange)
        except GatewayError:
            return False
        return not self.closing and isinstance(terms, Terms) and terms.needs_slot

    def _admit(self, exchange: Exchange) -> Local | Terms:
        return admit_again(
            self.route,
            exchange.request,
            ready=self.queue.ready,
            limits=self.limits,
            task=exchange.task,
        )

    def enter(self, task: Waiter, organization: str, priority: int) -> bool:
        """A task waits for a slot, for as long as it takes; False = not here, or not now."""
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
        self._take_up(Changes(granted, [each for each in ended if each[0] is not ticket]), now)
        if ticket.place == ENDED:
            task.ticket = None
            return False
        self.changed(BEGAN if first else COUNTS)
        return True

    def retry_after_s(self) -> float:
        """When a place in the queue will be free."""
        return self.queue.retry_after_s(self.loop.time())

    def grew(self, exchange: Sending, size_bytes: int) -> None:
        """More of a waiting exchange's body has come."""
        assert exchange.ticket is not None
        self._take_up(self.queue.grow(exchange.ticket, size_bytes), self.loop.time())

    def answering(self, exchange: Exchange) -> None:
        """A replica's answer has begun."""
        self.counters.answered(exchange.status)
        self.counters.first_bytes.add(self.loop.time() - exchange.begun_at)

    def told_whole(self, exchange: Exchange, now: float) -> None:
        """What `answering` and `told` do, where the answer came in one piece."""
        total_s = now - exchange.begun_at
        self.counters.answered_at_once(exchange.status, total_s)
        if self.access_log is not None and exchange.request.peer:
            self.access_log.note(exchange.log_entry(total_s))

    def told(self, exchange: Exchange, now: float) -> None:
        """The caller has its answer, or nothing more of it: it left, or was cut off."""
        total_s = now - exchange.begun_at
        if exchange.answered:
            self.counters.totals.add(total_s)
        if self.access_log is not None and exchange.request.peer:
            self.access_log.note(exchange.log_entry(total_s))

    def finished(self, waiter: Waiter, now: float) -> None:
        """The replica is done with it: its slot is free."""
        ticket, waiter.ticket = waiter.ticket, None
        if ticket is None:
            return
        ticket.teaches = ticket.expired or waiter.says_of_replica
        changes = self.queue.release(ticket, now)
        if changes is not NOTHING:
            self._take_up(changes, now)
        self._freed(ticket)

    def withdraw(self, waiter: Waiter) -> None:
        """It is over before anything of it was sent, or its slot is not waited for."""
        ticket, waiter.ticket = waiter.ticket, None
        if ticket is None:
            return
        if ticket.replica is None:
            self.queue.cancel(ticket)
            self.changed(COUNTS)
        else:
            now = self.loop.time()
            self._take_up(self.queue.withdraw(ticket, now), now)
            self._freed(ticket)

    def repeat(self, waiter: Waiter) -> None:
        """Another replica, or this one once more, may have it: it goes first in line."""
        ticket = waiter.ticket
        assert ticket is not None and ticket.replica is not None
        if self.closing:
            waiter.fail(RouteClosed(f"{self.route.name} is not served any more."))
            return
        self.counters.repeats += 1
        now = self.loop.time()
        if waiter.relayed != self.route.relayed:
            self.withdraw(waiter)
            waiter.enter_anew(inf if waiter.relayed else ticket.ends_at)
            return
        ticket.size_bytes = waiter.size_bytes
        self._take_up(self.queue.give_back(ticket, now), now)
        self._rewatch()
        self.changed(COUNTS)

    def unbound(self, exchange: Exchange) -> None:
        """The exchange may last: its answer has begun, or it has become a tunnel."""
        if exchange.ticket is not None:
            self.queue.answered(exchange.ticket, self.loop.time())

    # Inside: replicas

    def _follow_replicas(self) -> None:
        self._pools.follow(self.route)
        now = self.loop.time()
        self._take_up(self.queue.set_replicas(self.route.replicas, now), now)
        self._pools.keep({replica.id for replica in self.queue.replicas})
        self._rewatch()
        self.incoming.slot_freed()

    def _health_changed(self, pool: Pool) -> None:
        reason, was = pool.health.reason, self.queue.why_out(pool.id)
        if reason:
            log.warning("%s: replica %s is out: %s", self.route.name, pool.id, reason)
            self.queue.put_out(pool.id, reason)
        elif was:
            log.warning("%s: replica %s is in again", self.route.name, pool.id)
            now = self.loop.time()
            self._take_up(self.queue.let_in(pool.id, now), now)
            self.changed(COUNTS)

    def _send(self, ticket: Ticket[Waiter], now: float) -> None:
        assert ticket.replica is not None
        if ticket.needs_slot:
            self.counters.waited(now - ticket.arrived_at)
        ticket.holder.granted(self._pools.of(ticket.replica.id), now)

    def _take_up(self, changes: Changes[Waiter], now: float) -> None:
        """Sends and refuses what the queue says."""
        for ticket in changes.granted:
            self._send(ticket, now)
        for ticket, end in changes.ended:
            if end is not End.RUNNING:
                self._refused += 1
                ticket.holder.ticket = None
            if end is End.PUSHED_OUT:
                self.counters.pushed_out += 1
            error = refusal(self.route, self.queue, ticket, end, now)
            if news := self._news.tell(error, now):
                log.warning(news)
            ticket.holder.fail(error)

    def _freed(self, ticket: Ticket[Waiter]) -> None:
        replica = ticket.replica
        assert replica is not None
        drained = replica.draining and not replica.taken
        if drained and replica.gone:  # unless another of that id has come since
            self._pools.keep({each.id for each in self.queue.replicas})
        self.changed(DRAINED if drained else COUNTS)
        self.incoming.slot_freed()
        self._check_ended()

    def changed(self, change: Change) -> None:
        """Its demand is no longer what it was."""
        total = self.queue.in_flight + self.queue.queued
        if total > self._peak:
            self._peak = total
        if not self._told or change is not COUNTS:
            self._told = True
            self._tell(change)

    # Inside: refusing

    def _part_with_tasks(self) -> None:
        """From now on they have slots of their own: none waits here any more."""
        for ticket in list(self.queue.waiting):
            if ticket.holder.is_task:
                self.withdraw(ticket.holder)
                ticket.holder.enter_anew(inf)

    def _answer_locally(self, exchange: Exchange, local: Local) -> None:
        front, exchange.front = exchange.front, None
        if front is not None:
            front.answer_local(exchange, local)

    def _refuse_waiting(self, make_error: Callable[[], GatewayError]) -> None:
        for ticket in self.queue.clear():
            self._refused += 1
            ticket.holder.ticket = None
            ticket.holder.fail(make_error())

    # Inside: time

    def _rewatch(self) -> None:
        due = min(self.queue.next_event_at() or inf, self.queue.stalls_at(self.loop.time()))
        if due < inf:
            self._deadlines.set(due)

    def _ring(self) -> None:
        now = self.loop.time()
        changes = self.queue.advance(now)
        self._take_up(changes, now)
        if changes.ended or changes.granted:
            self.changed(COUNTS)
        self._rewatch()

    def _check_ended(self) -> None:
        if self.parting and self.queue.idle and not self.callers:
            self._let_everything_go()
            self._ended.set()

    def _let_everything_go(self) -> None:
        self._pools.keep(())
        self.callers.stop()
        self.incoming.stop()
        self.hangups.stop()
        self._deadlines.cancel()
