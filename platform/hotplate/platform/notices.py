"""Sentences that both the events of a deployment and its page have: what gateways refused, which
replica gets no requests; pure."""

from __future__ import annotations

from collections.abc import Mapping

from hotplate.serving.gateway.errors import (
    DeadlineExceeded,
    NoCapacity,
    NotReady,
    ReplicaFailed,
    ShareFull,
    TasksAway,
    TooManyConnections,
)

TRIED = "a gateway tries it at least every 5 s, and sends requests again once it answers"
"""What becomes of a replica that refuses connections though it is ready."""

_SERVE_MORE = "more replicas (scaling.max_replicas) or slots (traffic.concurrency) serve more"
_SEE_EVENTS = "'hotplate events {name}' says what happened to its replicas"
REFUSED = {
    ShareFull.code: ("the queue is full", _SERVE_MORE),
    NoCapacity.code: ("no response was expected in time", _SERVE_MORE),
    DeadlineExceeded.code: ("out of time", _SERVE_MORE),
    NotReady.code: ("no replica became ready in time", _SEE_EVENTS),
    ReplicaFailed.code: ("their replica died", _SEE_EVENTS),
    TooManyConnections.code: (
        "too many connections",
        "callers should keep theirs, or close what they do not use",
    ),
    TasksAway.code: ("tasks could not be kept", "'hotplate status' says what is short"),
}
"""Why requests were refused, and what to do, by error code; a caller's own faults are not here."""


def out(reason: str, since: str) -> str:
    """Why gateways send nothing to a replica, and since when."""
    return f"no requests since {since}: {reason}; {TRIED}"


def abandoned(handlers: int) -> str:
    """WebSockets of a replica whose slots have been given again."""
    counted = "1 abandoned handler" if handlers == 1 else f"{handlers} abandoned handlers"
    return f"{counted}: WebSockets that still run although their callers have gone"


def refused(deployment: str, counts: Mapping[str, int]) -> str:
    """How many requests of each error code a gateway refused, and what to do."""
    each, advice = [], []
    for code, count in sorted(counts.items(), key=lambda item: -item[1]):
        why, what_next = REFUSED.get(code, ("", ""))
        each.append(f"{count} {code} ({why})" if why else f"{count} {code}")
        advice.append(what_next.format(name=deployment))
    return "; ".join([f"{', '.join(each)}", *dict.fromkeys(filter(None, advice))])
