"""One route: where its callers arrive, which requests are admitted, and how it ends.

    callers/ ──request──► begin ──terms──► Dispatcher ──slot──► replicas/
                            │
                            └─► a local answer, a refusal, or the control plane for a kept task

The way of a request is in `proxy/`; the queue and the replicas' connections are the dispatcher's
(`proxy/dispatcher.py`). This file puts them together, and applies a new table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from hotplate.serving.gateway.admission.accepted_tokens import AcceptedTokens
from hotplate.serving.gateway.admission.gate import admit_again
from hotplate.serving.gateway.admission.task_routes import DOCS_PATH, task_call
from hotplate.serving.gateway.admission.terms import Local, Terms
from hotplate.serving.gateway.admission.version_choice import VersionChoice
from hotplate.serving.gateway.callers.connections import CallerConnections
from hotplate.serving.gateway.callers.host import Host
from hotplate.serving.gateway.callers.route_listener import Peers
from hotplate.serving.gateway.errors import DeadlineExceeded, GatewayError, RouteClosed
from hotplate.serving.gateway.fleet.connection_backup import ConnectionBackup
from hotplate.serving.gateway.http1.head_cache import HeadCache
from hotplate.serving.gateway.http1.multipart import watch_of
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.headers import version_line
from hotplate.serving.gateway.protocol.route_counts import RouteCounts
from hotplate.serving.gateway.protocol.routes import (
    ANSWER_KINDS,
    Change,
    Route,
    RouteDemand,
)
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.dispatcher import COUNTS, Dispatcher
from hotplate.serving.gateway.proxy.exchange import Exchange
from hotplate.serving.gateway.proxy.route_context import RouteContext
from hotplate.serving.gateway.queue.ticket import WAITING, Ticket
from hotplate.serving.gateway.replicas.call import Waiter
from hotplate.serving.gateway.telemetry.access_log import AccessLog
from hotplate.serving.gateway.telemetry.route_tally import RouteTally

NOTHING = RouteCounts()
TaskExchanges = Callable[[Caller, RouteContext, RequestHead], Exchange | None]
"""Makes the exchange of a call of a kept task; None = the request is a call like any other. It is
called only where the route has tasks, and for the page that documents them."""


class RouteServer(Host):
    """Serves one route. `changed` is called when its demand has changed."""

    def __init__(
        self,
        route: Route,
        limits: Limits,
        changed: Callable[[Change], None],
        peers: Peers | None = None,
        access_log: AccessLog | None = None,
        backup: ConnectionBackup | None = None,
    ) -> None:
        """`peers`: gateways that may listen at the same address; `backup`: for the next owner."""
        self.dispatcher = dispatcher = Dispatcher(
            route, limits, watcher=self, changed=changed, backup=backup
        )
        self.queue = dispatcher.queue
        self.counters = dispatcher.counters
        self._tally = RouteTally(dispatcher.counters, dispatcher.queue.answers)
        self.context = RouteContext(dispatcher, access_log)
        self.bodies = self.context.bodies
        self.heads = HeadCache()
        self.tokens: AcceptedTokens | None = None
        """Those of the gateway; None = its routes come from a file, and have their own."""
        self.task_exchanges: TaskExchanges | None = None
        """None = its tasks are with its replicas, like everything else."""
        self.choice: VersionChoice | None = None
        """Which requests go to other versions' routes; None = all are its own."""
        self.versions: Mapping[str, RouteServer] = {}
        """The routes of the versions beside this one, by id; they have no callers of their own."""
        self.main: RouteServer | None = None
        """The public route of the deployment of which this is a version's."""
        self.shared: list[RouteServer] = []
        """What its callers are connected to, where it is reached by its hosts."""
        self.callers = CallerConnections(
            self,
            ended=self.check_ended,
            error_changed=lambda: dispatcher.changed(COUNTS),
            peers=peers,
        )
        self._ended = asyncio.Event()

    @property
    def route(self) -> Route:
        """The current configuration."""
        return self.dispatcher.route

    @property
    def closing(self) -> bool:
        """Whether it takes no new requests and ends when those that run have ended."""
        return self.dispatcher.closing

    # The table's orders

    def follow(self, route: Route) -> None:
        """Follows a new configuration, except for its address, without ending what runs."""
        self._ended.clear()
        if not route.versions:
            self.choice = None
        elif self.choice is None or not self.choice.is_of(route):
            self.choice = VersionChoice(route)
        self.context.version_line = version_line(route.version)
        self.dispatcher.follow(route)
        self.bodies.slot_freed()
        self.check_ended()

    def stop(self, message: str) -> None:
        """Accepts no more requests and refuses those that wait; `ended` returns when the rest is
        done. What waits for a version that ends goes to `main`."""
        if self.main is not None and not self.main.closing:
            self.dispatcher.hand_back()
        else:
            self.dispatcher.close(message)
        self.callers.drain()
        self.dispatcher.changed(COUNTS)
        self.check_ended()

    @property
    def draining(self) -> bool:
        return self.dispatcher.closing or self.callers.retiring or self.callers.parting

    @property
    def has_callers(self) -> bool:
        """Whether anybody may still send it requests. Those of a version that ends go to `main`."""
        if self.callers:
            return True
        others = self.shared if self.main is None else [self.main]
        return not self.closing and any(each.has_callers for each in others)

    async def ended(self) -> None:
        """Waits until a stopped route has nothing running and no caller is connected."""
        await self._ended.wait()

    @property
    def is_over(self) -> bool:
        return self.dispatcher.closing and self._ended.is_set()

    def abandon(self) -> None:
        """Closes all that is still open."""
        self.callers.abort()
        self._release_all()

    @property
    def error(self) -> str:
        """Why it is not listening, or what it is reached through is not."""
        own = self.callers.listener.error
        return own or next((each.error for each in self.shared if each.error), "")

    def demand(self) -> RouteDemand:
        """The current demand; `changed` is called with the next change after it."""
        queue = self.queue
        return RouteDemand(
            peak=self.dispatcher.read_peak(),
            in_flight=queue.in_flight + sum(replica.taken_elsewhere for replica in queue.replicas),
            # A body that is waited for wakes a sleeping route, as a queued request does.
            queued=queue.queued + int(self.bodies.any_waiting and not queue.ready),
            completed=queue.completed,
            refused=self.dispatcher.refused,
            service_s=queue.service.mean_s,
            busy={
                r.id: r.taken + r.taken_elsewhere
                for r in queue.replicas
                if r.taken + r.taken_elsewhere
            },
            learnt={r.id: r.adaptive.learnt for r in queue.replicas if r.adaptive is not None},
            answers=queue.answers.by_kind(ANSWER_KINDS),
            abandoned=self.context.hangups.by_replica,
            error=self.error,
            owned=not self.route.relayed,
            oldest_at=queue.granted.oldest_at,
        )

    def take_counts(self, now: float) -> RouteCounts | None:
        """What it has counted since the last call; None = there is nothing new. How long requests
        took that it only passes on is their owner's to say."""
        busy_s = {r.id: s for r in self.queue.replicas if (s := r.take_busy_s(now))}
        counts = self._tally.take(self.queue.completed) or NOTHING
        if self.route.relayed:
            counts = replace(counts, waits=(), first_bytes=(), answers=())
        return replace(counts, busy_s=busy_s) if busy_s or counts != NOTHING else None

    # Requests

    def lead(self, versions: Mapping[str, RouteServer]) -> None:
        """These are the routes of the versions beside it from now on."""
        self.versions = versions
        for server in versions.values():
            server.main = self

    def exchange(self, caller: Caller, request: RequestHead) -> Exchange:
        if self.choice is not None:
            chosen = self._server_of(request, self.choice.of(request))
            if chosen is not self:
                return chosen.exchange(caller, request)
        exchange: Exchange | None = None
        route, kept = self.dispatcher.route, self.task_exchanges
        if kept is not None and (route.tasks or request.path.endswith(DOCS_PATH)):
            exchange = kept(caller, self.context, request)
        if exchange is None:
            exchange = Exchange(caller, self.context, request)
        if request.content_type.startswith(b"multipart/") and not route.internal:
            exchange.parts = watch_of(request.value(b"content-type"))
        return exchange

    def begin(self, exchange: Exchange, now: float) -> None:
        if exchange.dispatcher.closing:
            self.leave_ended(exchange)
        context, dispatcher = exchange.context, exchange.dispatcher
        exchange.relayed = dispatcher.route.relayed
        exchange.begun_at = exchange.begun_at or now
        try:
            terms = self._terms(exchange, now)
        except GatewayError as error:
            exchange.fail(error)
            return
        if isinstance(terms, Local):
            caller, exchange.caller = exchange.caller, None
            if caller is not None:
                caller.answer_local(terms)
            return
        if exchange.serve_elsewhere(terms, ready=dispatcher.queue.ready):
            return
        exchange.prefix = terms.prefix
        ticket: Ticket[Waiter] = Ticket(
            exchange,
            arrived_at=exchange.begun_at,
            timeout_s=min(terms.timeout_s, exchange.due_at - now),
            hold_s=terms.hold_s,
            size_bytes=exchange.size_bytes,
            needs_slot=terms.needs_slot,
            organization=terms.organization,
            priority=terms.priority,
        )
        exchange.ticket = ticket
        if not exchange.request_done and exchange.request.has_body:
            context.bodies.began(exchange)
        dispatcher.submit(ticket, now)
        if ticket.state == WAITING:
            context.bodies.requests_wait(now)

    def waits_for_body(self, exchange: Exchange) -> bool:
        if exchange.dispatcher.closing:
            self.leave_ended(exchange)
        try:
            terms = self._admit(exchange)
        except GatewayError:
            return False
        return not exchange.dispatcher.closing and isinstance(terms, Terms) and terms.needs_slot

    def leave_ended(self, exchange: Exchange) -> None:
        """The request's route takes no more; if that is a version's, `main` serves it."""
        main = self if self.main is None else self.main
        if exchange.context is not main.context and not main.closing:
            exchange.move_to(main.context)

    def slot_freed(self) -> None:
        self.bodies.slot_freed()
        self.check_ended()

    def check_ended(self) -> None:
        """Whether it has ended may have changed."""
        ends = self.draining and not self.callers.parting
        if ends and self.queue.idle and not self.has_callers:
            self._release_all()
            self._ended.set()
        if self.versions:
            for server in self.versions.values():
                server.check_ended()

    # Inside

    def _server_of(self, request: RequestHead, version: str) -> RouteServer:
        """The route that serves a request of this version. One about an earlier task is served by
        any version that has such tasks."""
        chosen = self.versions.get(version, self)
        if self.task_exchanges is not None:
            for server in (chosen, self, *self.versions.values()):
                call = task_call(server.route, request)
                if call is not None and (server is chosen or call.is_about_earlier):
                    return server
        return chosen

    def _terms(self, exchange: Exchange, now: float) -> Local | Terms:
        """The terms of a request whose turn has come. Raises GatewayError."""
        dispatcher = exchange.dispatcher
        if exchange.refused is not None:
            raise exchange.refused
        if exchange.due_at <= now:
            raise DeadlineExceeded(f"{dispatcher.route.name}: no slot became free in time.")
        if dispatcher.closing:
            raise RouteClosed(f"{dispatcher.route.name} is no longer served.", retry_after_s=1)
        return self._admit(exchange)

    def _admit(self, exchange: Exchange) -> Local | Terms:
        dispatcher = exchange.dispatcher
        return admit_again(
            dispatcher.route,
            exchange.request,
            ready=dispatcher.queue.ready,
            limits=dispatcher.limits,
            task=exchange.task,
            tokens=self.tokens,
        )

    def _release_all(self) -> None:
        self.dispatcher.stop()
        self.callers.stop()
        self.context.stop()
