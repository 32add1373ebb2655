"""The report of a load test: what was asked, what came of it, and what the platform did meanwhile.

`build` makes the figures, which are JSON; `write` makes files of them for programs and for people.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.markdown import markdown
from hotplate.platform.loadtest.observation import ObservedRun
from hotplate.platform.loadtest.page import page
from hotplate.platform.loadtest.plan import LoadPlan
from hotplate.platform.loadtest.replica_time import by_step, replica_time
from hotplate.platform.loadtest.samples import KEPT_UP, RequestSample
from hotplate.platform.loadtest.tally import (
    Steps,
    counts_by_step,
    distribution_of_many,
    tally,
)
from hotplate.platform.loadtest.thresholds import Threshold

JSON, MARKDOWN, HTML = "report.json", "report.md", "report.html"


def build(
    plan: LoadPlan,
    target: str,
    shape: str,
    due_s: Sequence[float],
    samples: Iterable[RequestSample],
    gaps_s: Sequence[float],
    observed: ObservedRun,
    ended_at_s: float,
    thresholds: Sequence[Threshold],
) -> dict[str, Any]:
    """The report as JSON: the keys are in platform/README.md.

    `due_s` are the arrivals that were asked for, in order, empty for a closed loop. `gaps_s` are
    the times between two events of streams. `ended_at_s` is when the last answer had come, or when
    the run was ended before its time: then `duration_s` is how long it was.
    """
    duration_s = min(plan.duration_s, ended_at_s)
    steps = Steps.over(plan.duration_s, ended_at_s)
    counted = tally(samples, duration_s, steps, plan.organizations)
    whole = duration_s >= plan.duration_s
    asked = len(due_s) if whole else bisect_left(due_s, duration_s)
    asked_per_s = None if plan.users else _rate(asked, duration_s)
    achieved_per_s = _rate(counted.sent, duration_s)
    cold_starts = [_cold_start(one) for one in observed.cold_starts]
    starts_s = [one["seconds"] for one in cold_starts if one["seconds"] is not None]
    used = replica_time(observed.observations, ended_at_s, starts_s)
    series: dict[str, Any] = {
        "step_s": steps.width_s,
        "at": [step * steps.width_s for step in range(steps.count)],
        "asked": counted.series["sent"] if plan.users else counts_by_step(due_s[:asked], steps),
    }
    report: dict[str, Any] = {
        "target": target,
        "shape": shape,
        "seed": plan.seed,
        "started_at": datetime.fromtimestamp(plan.started_at, UTC).isoformat(),
        "duration_s": round(duration_s, 3),
        "complete": whole,
        "rate_per_s": {"asked": asked_per_s, "achieved": achieved_per_s},
        "kept_up": asked_per_s is None or achieved_per_s >= KEPT_UP * asked_per_s,
        "requests": counted.requests,
        "answered": counted.answered,
        "failed": counted.failed,
        "refused": counted.refused,
        "latency_s": counted.latency_s,
        "first_byte_s": counted.first_byte_s,
        "between_events_s": distribution_of_many(gaps_s),
        "good_per_s": _rate(counted.answered_in_time, duration_s),
        "cold_starts": cold_starts,
        "organizations": counted.organizations,
        "series": series
        | {name: counted.series[name] for name in ("answered", "failed", "refused", "p95_s")}
        | by_step(observed.observations, steps),
        "gpu_s" if used and used.of_gpus else "replica_s": used.to_json() if used else None,
        "cost": None,  # no platform knows what its machines cost
    }
    return report | {"thresholds": [one.check(report) for one in thresholds]}


def write(folder: Path, report: Mapping[str, Any]) -> None:
    """Writes `report.json`, `report.md` and `report.html` into the folder, which is made where it
    is not there. Raises BadSetting where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / JSON).write_text(json.dumps(report, allow_nan=False) + "\n")
        (folder / MARKDOWN).write_text(markdown(report))
        (folder / HTML).write_text(page(report))
    except OSError as error:
        raise BadSetting(
            f"--report {folder} cannot be written: {error.strerror or error}; "
            "make room there, or name another folder"
        ) from error


def _rate(count: int, duration_s: float) -> float:
    return round(count / duration_s, 3) if duration_s > 0 else 0.0


def _cold_start(one: Mapping[str, Any]) -> dict[str, Any]:
    """One of the API's, with how long it took; null where it never became ready."""
    began, ready = one["created_at"], one.get("ready_at")
    seconds = None
    if ready is not None:
        took = datetime.fromisoformat(ready) - datetime.fromisoformat(began)
        seconds = round(took.total_seconds(), 3)
    return {
        "replica": one["replica"],
        "started_at": began,
        "seconds": seconds,
        "phases": [dict(phase) for phase in one.get("phases", ())],
    }
