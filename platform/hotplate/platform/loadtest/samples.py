"""What became of each request, as the processes of a load test write it; the format, and who is
good, refused or failed.

Each process appends 48 bytes a request (little endian, `RECORD`) and, of a stream, the time between
two events as 4 bytes (`gaps-N.f4`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RECORD = struct.Struct("<ddddHHIQ")
GAPS = "gaps-{}.f4"
"""Seconds between two events of a stream, single precision, of each process: its number."""

REFUSALS = frozenset({429, 503})
"""Statuses by which a platform says that it did not try: the queue is full, nothing is ready."""
NO_ANSWER = 0
"""The status of a request whose connection failed, or which took longer than it may."""

KEPT_UP = 0.98
"""The least share of the asked rate that the load maker must have achieved: below it the load was
another one than was asked for, and the figures flatter."""


class RequestSample(NamedTuple):
    """One request. Seconds are counted from the load test's second 0."""

    due_s: float
    """When it should have been sent: latency counts from here, however late it was sent. Of a
    closed loop, the same as `sent_s`."""
    sent_s: float
    first_byte_s: float
    """Of the answer's body, of a stream its first event; NaN where none came."""
    end_s: float
    status: int
    """HTTP's, of a task that failed 500; `NO_ANSWER`. A stream that breaks off has none either."""
    organization: int
    """Its place among the plan's."""
    events: int
    """Of a stream."""
    number: int
    """Of the plan's arrivals, or of its user's turn."""

    @property
    def latency_s(self) -> float:
        return self.end_s - self.due_s

    @property
    def answered(self) -> bool:
        return 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        return self.status in REFUSALS

    @property
    def has_begun(self) -> bool:
        return not math.isnan(self.first_byte_s)


def read(path: Path, offset: int = 0) -> Iterator[RequestSample]:
    """The whole records of a file from that byte on; the last may be half written.

    Raises OSError.
    """
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read()
    whole = len(content) - len(content) % RECORD.size
    yield from map(RequestSample._make, RECORD.iter_unpack(content[:whole]))
