"""`report.md`: the figures of a report for a pull request or a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hotplate.platform.loadtest.chart import number, seconds
from hotplate.platform.loadtest.thresholds import OF_DISTRIBUTION
from hotplate.platform.loadtest.words import NONE, notes, predicted, share, verdict

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$@:-])")
TIMES = {
    "latency_s": "latency",
    "first_byte_s": "first byte",
    "between_events_s": "between events",
}
COLD_STARTS = 50
"""How many are listed; `report.json` has all."""


def markdown(report: Mapping[str, Any]) -> str:
    """The report as Markdown; the series is left to the page."""
    rate, requests = report["rate_per_s"], report["requests"]
    asked = "as fast as users were answered" if rate["asked"] is None else f"{rate['asked']:g}/s"
    lines = [
        f"# Load test of {text(report['target'])}: {verdict(report)}",
        "",
        f"Shape {text(report['shape'])}, {report['duration_s']:g} s from {report['started_at']}, "
        f"seed {report['seed']}; asked {asked}, achieved {rate['achieved']:g}/s.",
        "",
        *(f"> {text(note)}\n" for note in notes(report)),
    ]
    lines += _table(
        ("requests", "answered", "refused", "failed", "good per second"),
        [
            (
                f"{requests:,}",
                *(
                    f"{report[name]:,} ({share(report[name], requests)})"
                    for name in ("answered", "refused", "failed")
                ),
                number(report["good_per_s"]),
            )
        ],
    )
    times = [(name, report[key]) for key, name in TIMES.items() if report[key] is not None]
    lines += _table(("", *OF_DISTRIBUTION), [(name, *_times(one)) for name, one in times])
    for key, what in (("replica_s", "replica"), ("gpu_s", "GPU")):
        if used := report.get(key):
            lines += _table(
                (f"{what}-seconds", *used),
                [(number(sum(used.values())), *map(number, used.values()))],
            )
    lines += _table(("figure", "predicted", "measured", "off by"), predicted(report))
    lines += _table(
        ("organization", "requests", "answered", "refused", *OF_DISTRIBUTION),
        [
            (
                text(name),
                *(f"{one[count]:,}" for count in ("requests", "answered", "refused")),
                *_times(one["latency_s"]),
            )
            for name, one in report["organizations"].items()
        ],
    )
    lines += _table(
        ("cold start of", "began", "took", "of which"),
        [
            (
                text(one["replica"]),
                text(one["started_at"]),
                "not ready" if one["seconds"] is None else seconds(one["seconds"]),
                ", ".join(
                    f"{text(str(phase['name']))} {seconds(phase.get('share_s', 0.0))}"
                    for phase in one["phases"]
                ),
            )
            for one in report["cold_starts"][:COLD_STARTS]
        ],
    )
    lines += _table(
        ("fails if", "value", "ok"),
        [
            (
                text(one["expression"]),
                "none" if one["value"] is None else f"{one['value']:.6g}",
                "yes" if one["ok"] else "**no**",
            )
            for one in report["thresholds"]
        ],
    )
    return "\n".join(lines)


def text(words: object) -> str:
    """Somebody's words, which are shown as they are: no Markdown and no HTML of theirs."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(words).split()))


def _times(one: Mapping[str, float] | None) -> list[str]:
    return [NONE if one is None else seconds(one[part]) for part in OF_DISTRIBUTION]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Nothing where there are no rows."""
    found = [f"| {' | '.join(row)} |" for row in rows]
    if not found:
        return []
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *found, ""]
