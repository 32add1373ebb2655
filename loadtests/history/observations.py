"""What clients, replicas and gateways saw of the same requests, each for itself.

All times are seconds of one clock: `CLOCK_MONOTONIC`, which `time.perf_counter` reads and which is
the same for all processes of a machine. A history is therefore of one machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Outcome = Literal["answered", "refused", "failed", "cut", "left", "silent"]
"""How a request ended for its client: with 200; with 429 or 503, which say that it was not tried;
with another status; by the end of its connection; because the client left; or not at all, as far as
the client has waited."""


class Sent(NamedTuple):
    """A client began to send a request, or to connect for it."""

    request: int
    at: float
    may_run_twice: bool
    order: str
    """Requests with the same value here are granted in the order in which they came: those of one
    organization with one time limit."""


class Repeated(NamedTuple):
    """A client sends a request again whose connection has ended without an answer."""

    request: int
    at: float


class Ended(NamedTuple):
    """A client saw the end of a request."""

    request: int
    at: float
    outcome: Outcome
    answer_of: int | None = None
    """The request for which the answer's body was made; None = for none that there is."""


class Run(NamedTuple):
    """A replica ran the handler of a request."""

    request: int
    replica: str
    """With the number of its life: one that was killed and started again is another replica."""
    began_at: float
    ended_at: float | None
    """Before the first byte of the response was sent; None = the replica was killed with it."""


class Passed(NamedTuple):
    """A gateway's line about a request that a replica answered. Its loop's clock has whole
    milliseconds."""

    request: int
    gateway: str
    noted_at: float
    """When the line was written: at the end of the response or a moment later."""
    waited_s: float
    """From the request's arrival to the grant of its slot, the last one if there were several."""
    total_s: float
    """From the request's arrival to the end of its response."""


@dataclass
class History:
    """All observations, in any order."""

    sent: Sequence[Sent] = ()
    repeated: Sequence[Repeated] = ()
    ended: Sequence[Ended] = ()
    runs: Sequence[Run] = ()
    passed: Sequence[Passed] = ()
    slots: Mapping[str, int] = field(default_factory=dict)
    """How many handlers each replica may run at once."""
    disturbed: Sequence[tuple[float, float]] = ()
    """From when until when a process was dead or being replaced: what waited then may have been
    granted, come back, and been granted again."""
