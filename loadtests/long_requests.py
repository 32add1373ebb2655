"""Traces of one model whose requests become longer than any before.

A rule that learns from requests that have ended learns of the long ones too late: they block the
replicas that there are, and nothing ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import merge

from hotplate.autoscaler.simulator.arrivals import RequestTrace

COLD_START_S = 60.0
"""What the traces are made for."""
CHANGE_S = 1200.0
"""When requests change."""
END_S = 2400.0


def trace_of(requests: list[tuple[float, float]]) -> RequestTrace:
    """Of (arrival, length) in seconds, by arrival."""
    return RequestTrace("", [at for at, _ in requests], [length_s for _, length_s in requests])


def together() -> RequestTrace:
    """Sixteen of 600 s at once, and nothing was known of the service."""
    return trace_of([(0.0, 600.0)] * 16)


def among_short(every_s: float = 10.0, short_s: float = 2.0, apart_s: float = 0.0) -> RequestTrace:
    """Eight of 300 s, `apart_s` after one another, in a steady stream of short ones."""
    long = [(CHANGE_S + apart_s * number, 300.0) for number in range(8)]
    return trace_of(list(merge(_stream(every_s, short_s, short_s), long)))


def ten_times(every_s: float = 20.0, short_s: float = 15.0) -> RequestTrace:
    """A steady stream whose requests are ten times as long from some moment on."""
    return trace_of(_stream(every_s, short_s, 10 * short_s))


LONG: Mapping[str, Callable[[], RequestTrace]] = {
    "16 of 600 s at once": together,
    "8 of 300 s among short ones": among_short,
    "ten times as long": ten_times,
}
"""By what a table calls them."""


def _stream(every_s: float, before_s: float, after_s: float) -> list[tuple[float, float]]:
    times = [every_s * number for number in range(int(END_S / every_s))]
    return [(at, before_s if at < CHANGE_S else after_s) for at in times]
