"""What was taken, added up by organization, deployment or day; pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from hotplate.platform.series.points import USES
from hotplate.platform.store.costs import Consumed, Cost

BY = ("organization", "deployment", "day")
"""By what it may be added up; by deployments of each organization."""
COLUMNS = (
    *("organization", "deployment", "day", "requests"),
    *(f"{kind}_{use}_s" for kind in ("gpu", "replica") for use in USES),
    *("standby_gpu_s", "cost"),
)
"""Of a file."""


def items(costs: Iterable[Cost], by: str) -> list[dict[str, Any]]:
    """One for each, by name or day. What is not the same in all that an item has is null; a
    deployment is "" where they are standbys of its organization."""
    found: dict[tuple[str, ...], Consumed] = {}
    for cost in costs:
        key = _key(cost, by)
        found[key] = found[key].plus(cost.taken) if key in found else cost.taken
    return [_item(key, taken, by) for key, taken in sorted(found.items())]


def sum_of(costs: Iterable[Cost]) -> dict[str, Any]:
    """All together, as one item; `lived` is what their parts add up to."""
    taken = Consumed()
    for cost in costs:
        taken = taken.plus(cost.taken)
    found = _taken(taken)
    for kind in ("gpu_s", "replica_s"):
        found[kind]["lived"] = round(sum(found[kind].values()), 3)
    return found


def _key(cost: Cost, by: str) -> tuple[str, ...]:
    if by == "day":
        return (datetime.fromtimestamp(cost.hour, UTC).date().isoformat(),)
    return (cost.organization,) if by == "organization" else (cost.organization, cost.deployment)


def _item(key: tuple[str, ...], taken: Consumed, by: str) -> dict[str, Any]:
    return {
        "organization": None if by == "day" else key[0],
        "deployment": key[1] if by == "deployment" else None,
        "day": key[0] if by == "day" else None,
        **_taken(taken),
    }


def _taken(taken: Consumed) -> dict[str, Any]:
    return {
        "requests": taken.requests,
        **{
            f"{kind}_s": {use: round(getattr(taken, f"{kind}_{use}_s"), 3) for use in USES}
            for kind in ("gpu", "replica")
        },
        "standby_gpu_s": round(taken.standby_gpu_s, 3),
        "cost": None if taken.cost is None else round(taken.cost, 6),
    }


def rows(found: Iterable[dict[str, Any]]) -> list[list[Any]]:
    """Items as the rows of a file, by `COLUMNS`; what is null is empty."""
    flat = (
        {
            **item,
            **{f"gpu_{use}_s": item["gpu_s"][use] for use in USES},
            **{f"replica_{use}_s": item["replica_s"][use] for use in USES},
        }
        for item in found
    )
    return [["" if one[name] is None else one[name] for name in COLUMNS] for one in flat]
