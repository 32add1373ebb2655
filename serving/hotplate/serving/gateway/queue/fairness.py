"""Which ticket is next: weighted fair queuing between organizations, by slot time used. Pure.

This is start-time fair queuing (Goyal, Vin and Cheng, 1996). Every flow has a tag, the slot time
that it has used divided by its weight; the flow with the least tag goes next. A request is charged
as it gets its slot, with the mean slot time of its flow, and the difference is settled as it ends,
so long requests buy no more slot time than short ones. The virtual time of the route, `_virtual`,
follows the tag of the flow that went last:

* A flow that comes back, or is new, starts from there, less one request's time: a flow saves
  nothing up while none of its requests wait, and loses nothing by being in service just as a slot
  comes free.
* When a slot comes free and no ticket waits, the contest is over. All flows start the next one
  equal (`_contest`), so none pays later for slots that no other flow wanted.

Inside one flow a `FlowQueue` says which ticket is first. Requeued tickets go before all others.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Generic

from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import NO_CONTEST, NO_ENTRY, Flow, Ticket, WaiterT

USUAL_COST_S = 1.0
"""Charged while nothing is known. It is settled later, so any figure would do."""
COST_WEIGHT = 0.1
"""Weight of the newest request of a flow in what its next one is charged."""
REMEMBERED = 1000
"""Limit of flows without a request that are kept, because callers choose organizations' names."""
STALE_MOST = 64
"""Invalid entries that a heap may always keep."""
COMPARED = 32
"""Flows that an estimate looks at one by one; it counts one request for each of the others."""


class FairQueue(Generic[WaiterT]):
    """All tickets that wait for a slot, and the slot time that each organization has used."""

    def __init__(self, service: ServiceTime) -> None:
        self.count = 0
        """Tickets that wait. An attribute, not `len`, because every request reads it."""
        self.contested = False
        """Whether there are several flows; with one there is nothing to charge."""
        self._service = service
        self._weights: Mapping[str, float] = {}
        self._requeued: OrderedDict[Ticket[WaiterT], None] = OrderedDict()
        self._flows: dict[str, Flow[WaiterT]] = {}
        self._waiting: OrderedDict[Flow[WaiterT], None] = OrderedDict()
        """Flows with a waiting ticket."""
        self._sole: Flow[WaiterT] | None = None
        """The only one of them; None = there are none, or several."""
        self.waiting_weight = 0.0
        """The sum of their weights."""
        self._heap: list[tuple[float, int, Flow[WaiterT]]] = []
        """These flows by tag, maintained while there are several. The valid entry of a flow is the
        one with its number; its tag may be too small but not too large."""
        self._last_entry = 0
        self._virtual = 0.0
        self._contest = 1
        self._sweep_at = REMEMBERED

    def __iter__(self) -> Iterator[Ticket[WaiterT]]:
        """All tickets, in the order in which they would go if no other came."""
        yield from list(self._requeued)
        heap = [
            (flow.tag, number, flow, iter(flow.queue)) for number, flow in enumerate(self._waiting)
        ]
        heapify(heap)
        number = len(heap)
        while heap:
            tag, _, flow, tickets = heap[0]
            ticket = next(tickets, None)
            if ticket is None:
                heappop(heap)
                continue
            number += 1
            heapreplace(heap, (tag + flow.cost_s / flow.weight, number, flow, tickets))
            yield ticket

    @property
    def flows(self) -> Iterable[Flow[WaiterT]]:
        """Flows with a request, waiting or running."""
        return (flow for flow in self._flows.values() if flow.running or flow.queue.count)

    @property
    def waiting(self) -> Collection[Flow[WaiterT]]:
        """Flows with a request that waits."""
        return self._waiting.keys()

    @property
    def known_flows(self) -> int:
        """How many flows are kept, also without a request."""
        return len(self._flows)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Sets the weights of organizations; those that are not named have 1."""
        self._weights = weights
        for flow in self._flows.values():
            flow.weight = weights.get(flow.name, 1.0)
        self.waiting_weight = sum(flow.weight for flow in self._waiting)

    # Tickets that wait

    def join(self, ticket: Ticket[WaiterT]) -> None:
        flow = self._flows.get(ticket.organization) or self.flow_of(ticket.organization)
        ticket.flow = flow
        if not flow.queue.count:
            self._activate(flow)
        flow.queue.join(ticket)
        flow.queued_bytes += ticket.size_bytes
        self.count += 1

    def requeue(self, ticket: Ticket[WaiterT]) -> None:
        """The ticket had a slot but was not served: it goes before all others."""
        self._requeued[ticket] = None
        self._requeued.move_to_end(ticket, last=False)
        self.count += 1

    def take(self, now: float) -> Ticket[WaiterT]:
        """Removes and returns the ticket that is next."""
        if self._requeued:
            self.count -= 1
            return self._requeued.popitem(last=False)[0]
        flow = self._sole or self._next_flow()
        ticket = flow.queue.take(now)
        self._removed(flow, ticket)
        return ticket

    def leave(self, ticket: Ticket[WaiterT]) -> None:
        if ticket in self._requeued:
            del self._requeued[ticket]
            self.count -= 1
            return
        flow = ticket.flow
        assert flow is not None, "a waiting ticket has a flow"
        flow.queue.leave(ticket)
        self._removed(flow, ticket)

    def grow(self, ticket: Ticket[WaiterT], size_bytes: int) -> None:
        ticket.size_bytes += size_bytes
        if ticket.flow is not None and ticket not in self._requeued:
            ticket.flow.queued_bytes += size_bytes

    def sort(self) -> None:
        """Sorts every flow again, after deadlines have changed."""
        for flow in self._waiting:
            flow.queue.sort()

    def ahead(self, ticket: Ticket[WaiterT]) -> float:
        """How many requests at least get their slots before this one, which is about to join."""
        flow = self.flow_of(ticket.organization)
        own = flow.queue.ahead(ticket)
        ahead = float(own + len(self._requeued))
        if own:
            turns = own / flow.weight
            for other in islice(self._waiting, COMPARED):
                if other is not flow:
                    ahead += min(other.queue.count, turns * other.weight)
            ahead += max(0, len(self._waiting) - COMPARED) * min(1.0, turns)
        return ahead

    # Slot time used

    def charge(self, ticket: Ticket[WaiterT]) -> None:
        """The ticket gets a slot."""
        flow = ticket.flow
        if flow is None:
            organization = ticket.organization
            flow = self._flows.get(organization) or self.flow_of(organization)
            ticket.flow = flow
        flow.running += 1
        if not self.contested:
            ticket.contest = NO_CONTEST
            return
        if not flow.queue.count:
            self._catch_up(flow)
        if flow.tag > self._virtual:
            self._virtual = flow.tag
        ticket.contest = self._contest
        ticket.charged_s = flow.cost_s
        flow.tag += flow.cost_s / flow.weight

    def settle(self, ticket: Ticket[WaiterT], slot_s: float, *, typical: bool) -> None:
        """The ticket had its slot for `slot_s`; `typical`: the next ones may take as long."""
        flow = ticket.flow
        assert flow is not None, "a charged ticket has a flow"
        flow.running -= 1
        if not self.contested:
            return
        if ticket.contest == self._contest:
            off_s = slot_s - ticket.charged_s
            flow.tag += off_s / flow.weight
            if off_s < 0.0 and flow.entry:
                self._enter(flow)
        if typical:
            flow.cost_s += (slot_s - flow.cost_s) * COST_WEIGHT

    def end_contest(self) -> None:
        """A slot is free and no ticket waits for it."""
        self._contest += 1

    def flow_of(self, organization: str) -> Flow[WaiterT]:
        flow = self._flows.get(organization)
        if flow is None:
            if len(self._flows) >= self._sweep_at:
                self._sweep()
            usual_s = self._service.mean_s or USUAL_COST_S
            for alone in self._flows.values() if len(self._flows) == 1 else ():
                alone.cost_s = usual_s
            flow = Flow(organization, self._weights.get(organization, 1.0), usual_s)
            self._flows[organization] = flow
            self.contested = len(self._flows) > 1
        return flow

    # Inside

    def _activate(self, flow: Flow[WaiterT]) -> None:
        self._catch_up(flow)
        if self._sole is not None:
            self._enter(self._sole)
        self._waiting[flow] = None
        self.waiting_weight += flow.weight
        if len(self._waiting) > 1:
            self._sole = None
            self._enter(flow)
        else:
            self._sole = flow

    def _removed(self, flow: Flow[WaiterT], ticket: Ticket[WaiterT]) -> None:
        flow.queued_bytes -= ticket.size_bytes
        self.count -= 1
        if not flow.queue.count:
            del self._waiting[flow]
            flow.entry = NO_ENTRY
            self.waiting_weight = self.waiting_weight - flow.weight if self._waiting else 0.0
            self._sole = next(iter(self._waiting)) if len(self._waiting) == 1 else None

    def _catch_up(self, flow: Flow[WaiterT]) -> None:
        """Brings the tag of a flow without waiting tickets up to the virtual time, less the time of
        one request."""
        if flow.contest != self._contest:
            flow.contest = self._contest
            flow.tag = self._virtual
        else:
            flow.tag = max(flow.tag, self._virtual - flow.cost_s / flow.weight)

    def _enter(self, flow: Flow[WaiterT]) -> None:
        self._last_entry += 1
        flow.entry = self._last_entry
        heappush(self._heap, (flow.tag, self._last_entry, flow))
        if len(self._heap) > 2 * len(self._waiting) + STALE_MOST:
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].entry]
            heapify(self._heap)

    def _next_flow(self) -> Flow[WaiterT]:
        heap = self._heap
        while True:
            tag, entry, flow = heap[0]
            if entry != flow.entry:
                heappop(heap)
            elif tag < flow.tag:
                self._last_entry += 1
                flow.entry = self._last_entry
                heapreplace(heap, (flow.tag, self._last_entry, flow))
            else:
                return flow

    def _sweep(self) -> None:
        """Forgets flows without a request, those that have used least slot time first."""
        idle = [flow for flow in self._flows.values() if not (flow.running or flow.queue.count)]
        idle.sort(key=lambda flow: flow.tag if flow.contest == self._contest else -math.inf)
        for flow in idle[: len(idle) - REMEMBERED // 2]:
            del self._flows[flow.name]
        self._sweep_at = len(self._flows) + REMEMBERED // 2
