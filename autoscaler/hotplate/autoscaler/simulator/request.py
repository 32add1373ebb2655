"""One request of a trace."""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    arrival_s: float
    """Seconds since the beginning of the trace."""
    service_s: float
    """How long a replica works on the request, seconds."""
    deployment: str
    organization: str
