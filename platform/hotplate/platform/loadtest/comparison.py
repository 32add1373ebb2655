"""Two runs of one shape beside each other: what became worse by more than their noise.

A figure has changed where it lies further from "the same" than 95 % of the ratios that `noise.py`
draws lie from the measured one. Only one percentile of each step is known, so the noise of the p95
stands for all latencies.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.noise import LEAST_STEPS, Noise, Sums
from hotplate.platform.loadtest.words import NONE

LEAST_NOISE = 0.01
"""A change of a percent is none, however steady the runs were."""
SAME_DURATION = 0.01
"""Two durations are the same that differ by no more than this share."""
NEEDED = (
    *("target", "shape", "duration_s", "rate_per_s", "requests", "answered", "failed", "refused"),
    *("latency_s", "good_per_s", "series"),
)
COLUMNS = ("at", "asked", "answered", "failed", "refused", "p95_s", "ready", "starting")

Verdict = Literal["worse", "better", "same", "unknown"]
Statistic = Callable[[Sums], float]


@dataclass(frozen=True)
class Compared:
    """One figure of both runs."""

    name: str
    before: float | None
    after: float | None
    ratio: float | None
    """After to before; None where one of them is 0 or missing."""
    noise: float | None
    """By how much the ratio, or the difference of two shares, may be off by chance; None = not
    known."""
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    """The reports."""
    figures: Sequence[Compared]

    @property
    def worse(self) -> list[Compared]:
        return [one for one in self.figures if one.verdict == "worse"]

    def to_json(self) -> dict[str, Any]:
        return {
            "before": _outline(self.before),
            "after": _outline(self.after),
            "figures": [vars(one) for one in self.figures],
            "worse": [one.name for one in self.worse],
        }


def read(path: Path) -> dict[str, Any]:
    """The report in that file, or in the `report.json` of that folder. Raises BadSetting."""
    file = path / "report.json" if path.is_dir() else path
    try:
        report = json.loads(file.read_bytes())
    except OSError as error:
        raise BadSetting(
            f"--compare {path} cannot be read: {error.strerror}; name the folder of a --report"
        ) from error
    except ValueError as error:
        raise BadSetting(f"--compare {path} is no report of a load test: it is no JSON") from error
    if missing := _missing(report):
        raise BadSetting(
            f"--compare {path} is no report of a load test: it has no {missing}; "
            "name the folder of a --report"
        )
    return dict(report)


def compare(before: Path, after: Path) -> Comparison:
    """The reports at these places. Raises BadSetting where they are none, or not of one shape and
    duration."""
    first, second = read(before), read(after)
    if not _alike(first, second):
        raise BadSetting(
            f"--compare: {before} is of {_run(first)} and {after} of {_run(second)}; "
            "only runs of the same shape and duration can be compared"
        )
    return compared(first, second)


def compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> Comparison:
    """Two reports of one shape and duration."""
    noises = Noise(before["series"], after["series"])
    figures = []
    for key, name in (("latency_s", "latency"), ("first_byte_s", "first byte")):
        for part in ("mean", "p50", "p90", "p95", "p99"):
            one, other = _time(before, key, part), _time(after, key, part)
            if one is not None or other is not None:
                figures.append(_figure(f"{name} {part}, s", one, other, noises, _p95))
    figures.append(
        _figure(
            "good per second", before["good_per_s"], after["good_per_s"], noises, _good, more=True
        )
    )
    for name, statistic in (("failed", _failed), ("refused", _refused)):
        figures.append(_share(name, before, after, noises, statistic))
    used = [_used(report) for report in (before, after)]
    if used != [None, None]:
        figures.append(_figure("replica-seconds", used[0], used[1], noises, _replicas))
    return Comparison(before, after, figures)


def markdown(comparison: Comparison) -> str:
    """The comparison as a table, and what became worse in a sentence."""
    lines = [
        "| figure | before | after | ratio | noise | |",
        "|---|---|---|---|---|---|",
    ]
    for one in comparison.figures:
        values = (NONE if value is None else f"{value:.4g}" for value in (one.before, one.after))
        ratio = NONE if one.ratio is None else f"{one.ratio:.3f}"
        noise = NONE if one.noise is None else f"± {100 * one.noise:.1f} %"
        verdict = f"**{one.verdict}**" if one.verdict == "worse" else one.verdict
        lines.append(f"| {one.name} | {' | '.join(values)} | {ratio} | {noise} | {verdict} |")
    names = ", ".join(one.name.removesuffix(", s") for one in comparison.worse)
    ending = (
        f"Worse by more than the noise: {names}."
        if names
        else "Nothing became worse by more than the noise."
    )
    if all(one.noise is None for one in comparison.figures):
        ending = f"Nothing is called worse: of fewer than {LEAST_STEPS} steps no noise is known."
    return "\n".join([*lines, "", ending, ""])


# What is compared --------------------------------------------------------------------------


def _p95(sums: Sums) -> float:
    """The p95 of the steps, each as heavy as what was asked in it."""
    return sums.weighted_p95_s / sums.weight if sums.weight else 0.0


def _good(sums: Sums) -> float:
    return sums.answered


def _replicas(sums: Sums) -> float:
    return sums.replicas


def _failed(sums: Sums) -> float:
    return sums.failed / sums.asked if sums.asked else 0.0


def _refused(sums: Sums) -> float:
    return sums.refused / sums.asked if sums.asked else 0.0


def _figure(
    name: str,
    before: float | None,
    after: float | None,
    noises: Noise,
    statistic: Statistic,
    *,
    more: bool = False,
) -> Compared:
    """A figure that is better the less it is, or the `more` it is."""

    def change(first: Sums, second: Sums) -> float | None:
        one, other = statistic(first), statistic(second)
        return math.log(other / one) if one > 0 and other > 0 else None

    if not before or not after:
        return Compared(name, before, after, None, None, "same" if before == after else "unknown")
    ratio = after / before
    noise = noises.of(change)
    if noise is None:
        return Compared(name, before, after, ratio, None, "unknown")
    noise = max(noise, math.log1p(LEAST_NOISE))
    return Compared(
        name, before, after, ratio, math.expm1(noise), _verdict(math.log(ratio), noise, more=more)
    )


def _share(
    name: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    noises: Noise,
    statistic: Statistic,
) -> Compared:
    """The share of all requests that failed or were refused: it may be 0, so the difference
    counts."""
    shares = [one[name] / one["requests"] if one["requests"] else 0.0 for one in (before, after)]
    ratio = shares[1] / shares[0] if all(shares) else None
    noise = noises.of(lambda first, second: statistic(second) - statistic(first))
    verdict: Verdict = "unknown"
    if shares[0] == shares[1]:
        verdict = "same"
    elif noise is not None:
        verdict = _verdict(shares[1] - shares[0], noise, more=False)
    return Compared(f"{name} share", shares[0], shares[1], ratio, noise, verdict)


def _verdict(change: float, noise: float, *, more: bool) -> Verdict:
    if abs(change) <= noise:
        return "same"
    return "better" if (change > 0) == more else "worse"


# Reports -------------------------------------------------------------------------------------


def _time(report: Mapping[str, Any], key: str, part: str) -> float | None:
    found = (report.get(key) or {}).get(part)
    return None if found is None else float(found)


def _used(report: Mapping[str, Any]) -> float | None:
    """Replica-seconds, or GPU-seconds."""
    used = report.get("replica_s") or report.get("gpu_s")
    return sum(used.values()) if used else None


def _missing(report: Any) -> str:
    """The first thing that a report has and this has not; empty = it is one."""
    if not isinstance(report, dict):
        return "object at its top"
    for name in NEEDED:
        if name not in report:
            return repr(name)
    series = report["series"]
    if not isinstance(series, dict) or not isinstance(series.get("step_s"), int | float):
        return "'series' with its 'step_s'"
    for name in COLUMNS:
        if not isinstance(series.get(name), list) or len(series[name]) != len(series["at"]):
            return f"'{name}' of each step in its 'series'"
    return ""


def _alike(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    durations = sorted((first["duration_s"], second["duration_s"]))
    return bool(
        first["shape"] == second["shape"] and durations[1] <= durations[0] * (1 + SAME_DURATION)
    )


def _run(report: Mapping[str, Any]) -> str:
    return f"shape {report['shape']} over {report['duration_s']:g} s"


def _outline(report: Mapping[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in ("target", "shape", "duration_s", "started_at")}
