"""What the routes about series, costs and models take and answer."""

from __future__ import annotations

from hotplate.platform.api.openapi.schemas import (
    NUMBER,
    TEXT,
    WHOLE,
    Schema,
    many,
    mapping,
    members,
    null_or,
    one_of,
    page,
)
from hotplate.platform.series.costs import BY
from hotplate.platform.series.percentiles import SHARES
from hotplate.platform.series.points import TIMES, USES

MOMENTS: dict[str, Schema] = {
    name: NUMBER | {"minimum": 0, "maximum": 253_402_300_800} for name in ("from", "to")
}
STEPS = {**MOMENTS, "step": NUMBER | {"exclusiveMinimum": 0, "maximum": 253_402_300_800}}
COST_QUERY = {**MOMENTS, "by": one_of(BY), "format": one_of(["json", "csv"])}

_COLUMN = many(null_or(NUMBER))
_BY_USE = members(**dict.fromkeys(USES, _COLUMN))
_PERCENTILES = members(**dict.fromkeys(SHARES, _COLUMN))
SERIES = members(
    step_s=WHOLE,
    at=many(WHOLE),
    replicas=members(**dict.fromkeys(("wanted", "ready", "starting", "draining"), _COLUMN)),
    gpu_s=_BY_USE,
    replica_s=_BY_USE,
    **dict.fromkeys(TIMES, _PERCENTILES),
    **dict.fromkeys(("requests", "errors", "refused", "in_flight", "queued"), _COLUMN),
    **dict.fromkeys(("cold_starts", "cpu_s", "memory_bytes"), _COLUMN),
    **dict.fromkeys(("gpu_share", "gpu_memory_bytes"), _COLUMN),
)

COUNTS: dict[str, Schema] = dict.fromkeys(("ready", "wanted", "in_flight", "queued"), WHOLE)
RATES = members(requests_per_s=NUMBER, errors_per_s=NUMBER)
TOTALS = members(deployments=WHOLE, by_status=mapping(WHOLE), rates=RATES, **COUNTS)

_SECONDS = dict.fromkeys(USES, NUMBER)
_TAKEN: dict[str, Schema] = {
    "requests": WHOLE,
    "standby_gpu_s": NUMBER,
    "cost": null_or(NUMBER),
}
_KINDS = ("gpu_s", "replica_s")
COSTS = members(
    **page(
        members(
            organization=null_or(TEXT),
            deployment=null_or(TEXT),
            day=null_or(TEXT),
            **_TAKEN,
            **dict.fromkeys(_KINDS, members(**_SECONDS)),
        )
    )["properties"],
    sum=members(**_TAKEN, **dict.fromkeys(_KINDS, members(**_SECONDS, lived=NUMBER))),
)
MODEL = members(
    tag=TEXT,
    size_bytes=WHOLE,
    files=many(members(path=TEXT, size_bytes=WHOLE)),
    used_by=many(TEXT),
    nodes=many(members(name=TEXT, memory_bytes=WHOLE, disk_bytes=WHOLE)),
)
