"""What a pod has said of its start, as far as it is believed: it may be a bento's code that has."""

from __future__ import annotations

import json
from typing import Any

from hotplate.deploy.cluster.pod_spec import PodReport
from hotplate.deploy.phases import Phase
from hotplate.serving.replica.inside import journal, methods
from hotplate.serving.replica.inside.report import MOST_BYTES

LONGEST_S = 7 * 86400.0
"""No start takes longer."""


def report_in(content: bytes) -> PodReport | None:
    """What is valid of an answer of `GET /hotplate/report`; None if nothing is."""
    try:
        said = json.loads(content[:MOST_BYTES])
        phases, about = said["phases"], said["methods"]
        found = [_phase(name, phases[name]) for name in journal.NAMES if name in phases]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return PodReport(tuple(phase for phase in found if phase), methods.checked(about))


def _phase(name: str, span: Any) -> Phase | None:
    """None for one that cannot have been."""
    try:
        start, end = (None if at is None else float(at) for at in span)
    except (ValueError, TypeError, OverflowError):
        return None
    if start is None or not 0 <= start <= LONGEST_S:
        return None
    if end is not None and not start <= end <= LONGEST_S:
        return None
    return Phase(name, start, end)
