"""A queue of slots, its replicas and tickets, as tests make them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.changes import End
from hotplate.serving.gateway.queue.discipline import SlotQueue
from hotplate.serving.gateway.queue.ticket import Ticket

TIMEOUT_S = 60.0
HOLD_S = 600.0


def queue_of(*replicas: ReplicaRoute, limit: int = 100, limit_bytes: int = 1000) -> SlotQueue[str]:
    queue: SlotQueue[str] = SlotQueue(limit, limit_bytes, now=0.0)
    queue.set_replicas(replicas, 0.0)
    return queue


def ticket_of(
    name: str,
    now: float = 0.0,
    *,
    size: int = 1,
    slot: bool = True,
    timeout_s: float = TIMEOUT_S,
    organization: str = "",
    priority: int = 3,
) -> Ticket[str]:
    return Ticket(
        name,
        arrived_at=now,
        timeout_s=timeout_s,
        hold_s=HOLD_S,
        size_bytes=size,
        needs_slot=slot,
        organization=organization,
        priority=priority,
    )


def outcome(queue: SlotQueue[str], ticket: Ticket[str], now: float) -> int | End:
    """Where the submitted ticket is, or why it is not."""
    refused = [end for other, end in queue.submit(ticket, now).ended if other is ticket]
    return refused[0] if refused else ticket.state


def names(tickets: Iterable[Ticket[str]]) -> list[str]:
    return [ticket.waiter for ticket in tickets]


def replica_of(ticket: Ticket[str]) -> str:
    assert ticket.replica is not None
    return ticket.replica.id


def one(concurrency: int = 1, *, draining: bool = False, name: str = "a") -> ReplicaRoute:
    return ReplicaRoute(name, "host:1", concurrency, draining)


def order_of(queue: SlotQueue[str], running: Ticket[str]) -> list[str]:
    """How all that wait go, one after the other, in one slot."""
    gone = []
    while granted := queue.release(running, 0.0).granted:
        (running,) = granted
        gone.append(running.waiter)
    return gone


def busy_queue(*waiting: Ticket[str], **limits: int) -> tuple[SlotQueue[str], Ticket[str]]:
    """A queue whose one slot is taken, and who has it."""
    queue, running = queue_of(one(), **limits), ticket_of("running", organization="first")
    queue.submit(running, 0.0)
    for ticket in waiting:
        queue.submit(ticket, 0.0)
    return queue, running


def taught(queue: SlotQueue[str], service_s: float) -> SlotQueue[str]:
    """The queue after some requests that took so long, the last until 0."""
    for number in range(20):
        began = (number - 20) * service_s
        ticket = ticket_of("before", began)
        queue.submit(ticket, began)
        queue.release(ticket, began + service_s)
    return queue


def turn_over(queue: SlotQueue[str], running: deque[Ticket[str]], times: int) -> None:
    for number in range(times):
        running.extend(queue.release(running.popleft(), 0.0).granted)
        queue.submit(ticket_of("", organization=str(number % 5)), 0.0)
        queue.next_event_at()
