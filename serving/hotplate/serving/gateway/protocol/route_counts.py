"""What a gateway has counted of a route since it last said so: answers, refusals, times, busy
replicas.

It travels beside the demand, and only for routes of which there is something new. Differences are
sent and not totals: neither a gateway nor a control plane that starts anew needs a beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

BOUNDS_S: Final[tuple[float, ...]] = (
    0.001,
    0.005,
    0.025,
    0.1,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
"""Upper bounds of the buckets in which times are counted, from an immediate response to a long cold
start; one more bucket has what took longer."""

Buckets = tuple[tuple[int, int], ...]
"""(bucket, how many) of those that are not empty; the bucket is an index of `BOUNDS_S`, or one
more than the last."""


@dataclass(frozen=True)
class RouteCounts:
    """Of one route, since the last ones of the same gateway."""

    answered: int = 0
    """Requests that a replica has answered whole, 5xx too."""
    failed: int = 0
    """Those of them that it has answered with 5xx."""
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Requests that the gateway has answered with an error of its own, by code."""
    waits: Buckets = ()
    """From arrival until a replica had a slot for it."""
    first_bytes: Buckets = ()
    """From arrival until a replica's answer began."""
    answers: Buckets = ()
    """From arrival until a replica's answer had been passed on whole."""
    busy_s: Mapping[str, float] = field(default_factory=dict)
    """How long a slot at least was taken, by replica."""

    def to_json(self) -> dict[str, Any]:
        """What is not empty."""
        named = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in named.items() if value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> RouteCounts:
        return RouteCounts(
            answered=data.get("answered", 0),
            failed=data.get("failed", 0),
            refusals=data.get("refusals", {}),
            waits=_buckets(data.get("waits", ())),
            first_bytes=_buckets(data.get("first_bytes", ())),
            answers=_buckets(data.get("answers", ())),
            busy_s=data.get("busy_s", {}),
        )


def _buckets(data: Any) -> Buckets:
    return tuple((bucket, count) for bucket, count in data)
