"""`--fail-if 'p95_s > 1.5'`: what must not be true of a report; pure."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotplate.machine.nearest import nearest
from hotplate.platform.errors import BadSetting

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
OF_DISTRIBUTION = ("mean", "p50", "p90", "p95", "p99", "max")
EXAMPLE = "write a figure of the report, an operator and a number: 'p95_s > 1.5'"

_EXPRESSION = re.compile(r"(.+?)\s*(<=|>=|==|!=|<|>)\s*(\S+)")
_ORGANIZATIONS = "organizations."
_SHARE = "_share"

Path = tuple[str, ...]


def _distributions(*names: str) -> dict[str, Path]:
    return {f"{name}.{part}": (name, part) for name in names for part in OF_DISTRIBUTION}


_LATENCY: dict[str, Path] = {
    **{f"{part}_s": ("latency_s", part) for part in OF_DISTRIBUTION},
    **_distributions("latency_s"),
}
OF_ORGANIZATION: Mapping[str, Path] = _LATENCY | {
    name: (name,) for name in ("requests", "answered", "refused", "answered_share", "refused_share")
}
"""What may follow `organizations.NAME.`, and where it stands in the organization's part."""
OF_RUN: Mapping[str, Path] = {
    **_LATENCY,
    **_distributions("first_byte_s", "between_events_s"),
    **{
        name: (name,)
        for name in (
            *("requests", "answered", "failed", "refused", "good_per_s", "cost", "cold_starts"),
            *("answered_share", "failed_share", "refused_share"),
        )
    },
    **{f"rate_per_s.{part}": ("rate_per_s", part) for part in ("asked", "achieved")},
    **{
        f"{name}.{part}": (name, part)
        for name in ("replica_s", "gpu_s")
        for part in ("busy", "idle", "starting")
    },
}
"""The names of figures, and where they stand in a report. `cold_starts` is their number; a share is
of all requests."""


@dataclass(frozen=True)
class Threshold:
    """A run has failed where `figure` is `comparison` (an operator) `limit`."""

    expression: str
    path: Path
    comparison: str
    limit: float

    def check(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """`{"expression", "value", "ok"}`, as a report has it. A figure that the run has not is
        null, and not ok."""
        value = _value(report, self.path)
        holds = value is None or OPERATORS[self.comparison](value, self.limit)
        return {"expression": self.expression, "value": value, "ok": not holds}


def parse(text: str) -> Threshold:
    """The threshold that is written there. Raises BadSetting."""
    given = f"--fail-if {text!r}"
    found = _EXPRESSION.fullmatch(text.strip())
    if found is None:
        raise BadSetting(f"{given} is no expression; {EXAMPLE}")
    name, comparison, number = found.groups()
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit):
        raise BadSetting(f"{given}: {number} is not a number; {EXAMPLE}")
    return Threshold(text.strip(), _path(given, name), comparison, limit)


def sentence(checked: Mapping[str, Any]) -> str:
    """Why a run has failed by an entry of its report's `thresholds`; empty where it has not."""
    expression, value = checked["expression"], checked["value"]
    if checked["ok"]:
        return ""
    if value is None:
        return f"{expression!r} cannot be checked: this run has no such figure"
    return f"{expression!r} is true: it is {value:.6g}"


def _path(given: str, name: str) -> Path:
    """Where the figure of that name stands."""
    if not name.startswith(_ORGANIZATIONS):
        return _known(given, name, OF_RUN, "", [*OF_RUN, f"{_ORGANIZATIONS}NAME.refused"])
    rest = name.removeprefix(_ORGANIZATIONS)
    # Names of organizations may have dots themselves, so the longest figure at the end is meant.
    endings = [one for one in OF_ORGANIZATION if rest.endswith(f".{one}")]
    if not endings:
        organization, _, figure = rest.partition(".")
        prefix = f"{_ORGANIZATIONS}{organization}."
        return _known(given, figure, OF_ORGANIZATION, prefix, OF_ORGANIZATION)
    figure = max(endings, key=len)
    organization = rest.removesuffix(f".{figure}")
    return ("organizations", organization, *OF_ORGANIZATION[figure])


def _known(
    given: str,
    name: str,
    known: Mapping[str, Path],
    prefix: str,
    choices: Sequence[str] | Mapping[str, Path],
) -> Path:
    if name in known:
        return known[name]
    near = nearest(name, choices, likeness=0.4)
    hint = f"; did you mean {prefix}{near}?" if near else f"; there are {', '.join(choices)}"
    raise BadSetting(f"{given}: a report has no figure {prefix}{name}{hint}")


def _value(report: Any, path: Path) -> float | None:
    """The figure at that place; None where there is none."""
    *above, last = path
    for name in above:
        report = report.get(name) if isinstance(report, Mapping) else None
    if not isinstance(report, Mapping):
        return None
    if last.endswith(_SHARE):
        part, whole = report.get(last.removesuffix(_SHARE)), report.get("requests")
        return part / whole if part is not None and whole else None
    found = report.get(last)
    return len(found) if isinstance(found, list | tuple) else found
