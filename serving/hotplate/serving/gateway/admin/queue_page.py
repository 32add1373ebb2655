"""A deployment's queue, as operators and waiting callers want to see it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import inf
from typing import Any

from hotplate.serving.gateway.queue.discipline import SlotQueue
from hotplate.serving.gateway.queue.ticket import Ticket, WaiterT

LISTED = 100
"""Limit of requests, and of organizations, that are listed."""


def describe(
    name: str, error: str, queue: SlotQueue[WaiterT], now: float, slots_from: str = ""
) -> dict[str, Any]:
    """Describes the queue; times are seconds from now. `estimated_start_s` is when a request gets
    its slot, at the top level a request that came now; null = that is not known, because no replica
    is ready and none has started here before. `slots_from` says where the number of a replica's
    slots comes from; if it is learnt, `concurrency` differs during a trial. Waiting requests are in
    the order in which they will go."""
    waiting = enumerate(islice(queue.waiting, LISTED))
    return {
        "deployment": name,
        "error": error,
        "queued": queue.queued,
        "queued_bytes": queue.queued_bytes,
        "queue_limit": queue.overflow.limit,
        "queue_limit_bytes": queue.overflow.limit_bytes,
        "in_flight": queue.in_flight,
        "slots": queue.slots,
        "slots_from": slots_from,
        "service_s": _rounded(queue.service.mean_s) or None,
        "retry_after_s": _rounded(max(1.0, queue.estimates.retry_after_s(now))),
        "estimated_start_s": _rounded(queue.estimates.start_s(queue.fair_queue.count, now)),
        "organizations": _organizations(queue),
        "waiting": [_ticket(ticket, queue, ahead, now) for ahead, ticket in waiting],
        "replicas": [
            {
                "id": replica.id,
                "concurrency": replica.concurrency,
                "learnt": None if replica.adaptive is None else replica.adaptive.learnt,
                "taken": replica.taken,
                "draining": replica.draining,
                "out": replica.ejection_reason,
            }
            for replica in queue.replicas
        ],
    }


def _organizations(queue: SlotQueue[WaiterT]) -> Mapping[str, Any]:
    """The organizations with most waiting requests first."""
    flows = sorted(queue.fair_queue.flows, key=lambda flow: -flow.queue.count)[:LISTED]
    return {
        flow.name: {
            "queued": flow.queue.count,
            "in_flight": flow.running,
            "weight": flow.weight,
        }
        for flow in flows
    }


def _ticket(
    ticket: Ticket[WaiterT], queue: SlotQueue[WaiterT], ahead: int, now: float
) -> Mapping[str, Any]:
    start_s = queue.estimates.start_s(ahead, now) if ticket.needs_slot or not queue.ready else 0.0
    return {
        "organization": ticket.organization,
        "priority": ticket.priority,
        "waited_s": _rounded(now - ticket.arrived_at),
        "deadline_s": _rounded(ticket.ends_at - now) if ticket.ends_at < inf else None,
        "estimated_start_s": _rounded(start_s),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
