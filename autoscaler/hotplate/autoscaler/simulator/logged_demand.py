"""Requests reconstructed from the demand that a platform has logged.

A log consists of JSON lines, as `hotplate why NAME --log` prints them, of one or more deployments.
Lines of the kind `demand` are used: each has a time, the number of requests that came since the
line before, and the mean duration of a request. The requests are assumed to have come evenly in the
second before the line, since the platform logs at most one line a second, and to have lasted as
long as the mean of the first line by which they had ended.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

from hotplate.autoscaler.errors import TraceInvalid
from hotplate.autoscaler.simulator.arrivals import MOST_S, RequestTrace

SAMPLE_S = 1.0
"""The requests of a line came within this time before it."""


@dataclass(frozen=True)
class Sample:
    """One line of demand."""

    at_s: float
    service: str
    organization: str
    arrived: int
    service_s: float
    outstanding: int
    """Requests in flight or queued."""


def read_log(paths: Iterable[Path]) -> dict[str, RequestTrace]:
    """The requests of each service, by `deployment`, or `deployment/service` where it has several.

    Times are seconds since the first line. Raises TraceInvalid, whose message names the file, the
    line and the mistake.
    """
    found: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    paths = list(paths)
    for path in paths:
        for deployment, sample in _samples(path):
            found[deployment][sample.service].append(sample)
    began = min(
        (s.at_s for one in found.values() for some in one.values() for s in some), default=0
    )
    trace = {}
    for deployment, services in found.items():
        for service, samples in services.items():
            name = deployment if len(services) == 1 else f"{deployment}/{service}"
            arrivals = _arrivals(name, sorted(samples, key=lambda one: one.at_s), began)
            if arrivals.arrival_s:
                trace[name] = arrivals
    if not trace:
        names = ", ".join(map(str, paths))
        raise TraceInvalid(f"{names}: the log has no requests; give one of a deployment in use")
    return trace


def _samples(path: Path) -> Iterator[tuple[str, Sample]]:
    number = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):  # noqa: B007 - the handlers name it
                entry = json.loads(line) if line.strip() else {}
                if isinstance(entry, dict) and entry.get("kind") == "demand":
                    yield str(entry["deployment"]), _sample(entry)
    except OSError as error:
        raise TraceInvalid(f"{path} cannot be read ({error}); give a log") from error
    except UnicodeDecodeError as error:
        raise TraceInvalid(
            f"{path}, after line {number}: not UTF-8 ({error.reason}); unpack a compressed file"
        ) from error
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise TraceInvalid(
            f"{path}, line {number}: {error!r}; write the log with 'hotplate why NAME --log'"
        ) from error


def _sample(entry: dict[str, Any]) -> Sample:
    """The sample of one line. Raises KeyError, TypeError or ValueError for an invalid line."""
    arrived, service_s = int(entry["arrived"]), float(entry["service_s"])
    if arrived < 0 or not 0 <= service_s <= MOST_S["service_s"]:
        raise ValueError("arrived and service_s must be numbers from 0 on, service_s at most 1e7")
    at_s = datetime.fromisoformat(entry["at"]).timestamp()
    outstanding = int(entry["in_flight"]) + int(entry["queued"])
    return Sample(
        at_s, str(entry["service"]), str(entry["organization"]), arrived, service_s, outstanding
    )


def _arrivals(name: str, samples: list[Sample], began: float) -> RequestTrace:
    if any(one.arrived for one in samples) and not any(one.service_s for one in samples):
        raise TraceInvalid(
            f"{name}: no request has ended in the log, so their duration is not known; "
            "give a longer log"
        )
    arrivals = RequestTrace(samples[0].organization)
    before = 0.0
    for sample, length_s in zip(samples, _lengths_s(samples), strict=True):
        at_s = sample.at_s - began
        since = max(before, at_s - SAMPLE_S)
        for turn in range(sample.arrived):
            arrivals.arrival_s.append(since + (at_s - since) * (turn + 1) / sample.arrived)
            arrivals.service_s.append(length_s)
        before = at_s
    return arrivals


def _lengths_s(samples: list[Sample]) -> list[float]:
    """The mean duration of each line's requests; the last known one where the log ends before
    they do."""
    came = list(accumulate(sample.arrived for sample in samples))
    known = [
        (total - sample.outstanding, sample.service_s)
        for total, sample in zip(came, samples, strict=True)
    ]
    last_s = next((sample.service_s for sample in reversed(samples) if sample.service_s), 0.0)
    lengths, turn = [], 0
    for line, total in enumerate(came):
        turn = max(turn, line)
        while turn < len(known) and not (known[turn][0] >= total and known[turn][1]):
            turn += 1
        lengths.append(known[turn][1] if turn < len(known) else last_s)
    return lengths
