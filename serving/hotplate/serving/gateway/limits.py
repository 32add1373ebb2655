"""What a gateway accepts of one connection or request, whatever the route says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on callers and on connections to replicas."""

    hosts: tuple[str, ...] = ()
    """Names by which browsers may call, besides loopback names and the address of the route; with a
    port those of a proxy that changes `Host`."""
    head_bytes: int = 64 << 10
    """Header section, bytes; above it 431. Uvicorn's own limit for a replica is 64 KiB."""
    head_lines: int = 200
    """Header lines; above it 431."""
    target_bytes: int = 16 << 10
    """Request target, bytes; above it 414."""
    read_ahead_bytes: int = 64 << 10
    """Body bytes in memory of a request that no replica has yet; then reading pauses."""
    hold_bytes: int = 16 << 20
    """Bytes in memory of a body that is waited for; less if the route's bodies and queue fill
    `queue_limit_bytes` together. The rest goes to a file."""
    spool_bytes: int = 4 << 30
    """Bytes that these files of one route may fill together; one more byte drops another body."""
    grace_s: float = 0.05
    """A request waits this long for its body before it may have a spare slot without all of it
    (`slow_bodies.py`)."""
    stall_s: float = 3.0
    """A body that is still coming loses its slot to waiting requests this long after its last byte
    ..."""
    slow_bytes_per_s: int = 1024
    """... or this long after it fell behind this rate."""
    wary_s: float = 30.0
    """For this long after that no request of its address gets a slot before its body is whole."""
    repeat_bytes: int = 1 << 20
    """Bytes of a sent body that are kept until the handler has begun, or until the response begins
    at a server that does not say so, to send it again if the replica dies; a larger one is not sent
    again."""
    pipelined: int = 16
    """Requests read ahead on one connection; then reading pauses."""
    pipelined_most: int = 128
    """Requests that may come ahead in one read; more is a 400."""
    connections: int = 16_384
    """Callers' connections of one route; one more is answered 503 and closed."""
    idle_s: float = 75.0
    """A caller's connection without a request is closed after this (nginx's figure)."""
    head_s: float = 30.0
    """Time a caller has to send a header section; above it 408."""
    body_s: float = 30.0
    """Time that may pass between two pieces of a body; above it 408."""
    take_s: float = 30.0
    """A caller that takes no byte of its response for this long is disconnected."""
    take_stall_s: float = 10.0
    """While others wait for a slot, the same for a caller that takes none for this long, or since
    then less than `slow_bytes_per_s`."""
    sweep_s: float = 2.0
    """How often slow and idle callers are checked, while there are any callers."""
    abandon_s: float = 10.0
    """A WebSocket whose caller has gone keeps its slot for this long at most, from when its replica
    was notified, although its handler goes on (`abandoned.py`)."""
    linger_s: float = 2.0
    """Time in which the rest of an unwanted body is read and dropped, so that the response
    arrives."""
    connect_s: float = 5.0
    """Time for a replica to accept a connection."""
    upstream_idle_s: float = 4.0
    """An idle connection to a replica is closed after this: before uvicorn closes it at 5 s."""
    ready_hold_s: float = 25.0
    """`GET /readyz` is held this long: the bentoml client gives up at 30 s."""
