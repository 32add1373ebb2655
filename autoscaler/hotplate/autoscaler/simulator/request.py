"""One request of a trace."""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    arrival_s: float
    """Seconds from the trace's beginning."""
    service_s: float
    """How long a replica works on it."""
    deployment: str
    organization: str
