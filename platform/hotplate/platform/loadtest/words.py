"""What a report says in sentences, on its page and in its Markdown; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotplate.platform.loadtest.thresholds import sentence

NONE = "\N{EN DASH}"
"""In the place of a figure that there is not."""


def verdict(report: Mapping[str, Any]) -> str:
    """`passed` or `failed` by its thresholds; `measured` where it has none."""
    if not report["thresholds"]:
        return "measured"
    return "passed" if all(one["ok"] for one in report["thresholds"]) else "failed"


def notes(report: Mapping[str, Any]) -> list[str]:
    """What a reader must know before any figure."""
    found = [sentence(one) for one in report["thresholds"]]
    rate = report["rate_per_s"]
    if not report["kept_up"]:
        found.append(
            f"The load was not the one that was asked for: {rate['achieved']:g} of "
            f"{rate['asked']:g} requests a second were sent in time, so every figure here "
            "flatters. More --processes, or a machine with more processors, send more."
        )
    if not report["complete"]:
        found.append(
            f"The run was ended after {report['duration_s']:g} s, before its time: the figures "
            "are of what was."
        )
    if report["requests"] == 0:
        found.append("No request was sent, so there are no figures.")
    return [one[0].upper() + one[1:] for one in found if one]


def share(part: int, whole: int) -> str:
    """Percent that never say 100 or 0 where it is not all or nothing."""
    if not whole:
        return "none"
    percent = 100 * part / whole
    if 0 < part < whole:
        percent = min(99.99, max(0.01, percent))
    return f"{percent:.4g} %"


def predicted(report: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """What was predicted beside what was measured, and how far off it was; empty where nothing
    was."""
    found = report.get("prediction")
    if not found:
        return []
    measured, off = found["measured"], found["off"]
    name = "gpu_s" if "gpu_s" in found else "replica_s"
    return [
        (
            "GPU-seconds" if name == "gpu_s" else "replica-seconds",
            f"{sum(found[name].values()):.1f}",
            _or_none(measured[name], "{:.1f}"),
            _or_none(off[name], "{:+.1%}"),
        ),
        (
            "mean wait, s",
            f"{found['wait_s']['mean']:.3f}",
            _or_none(measured["wait_s"], "{:.3f}"),
            f"{_or_none(off['wait'], '{:+.1%}')} ({_or_none(off['wait_s'], '{:+.3f} s')})",
        ),
        ("cold starts", str(found["starts"]), str(measured["starts"]), ""),
    ]


def _or_none(value: float | None, form: str) -> str:
    return NONE if value is None else form.format(value)
