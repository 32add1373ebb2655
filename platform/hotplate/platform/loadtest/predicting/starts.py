"""How long the next starts of a deployment's replicas will take, by what its last ones took."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from hotplate.autoscaler.simulator.template import TemplateSupply
from hotplate.deploy.phases import ONCE

LAST = 20
"""The newest starts of each kind say what the next ones take; a decider remembers as many."""
LOOKED_AT = 100
"""The newest starts, among which both kinds are looked for."""
SHORTEST_S = 0.1
INSIDE = ("init", "weights")
"""Phases that a fork has too: a template has done what comes before them."""


def known(
    starts: Sequence[Mapping[str, Any]], learnt_s: Sequence[float], standby: Mapping[str, Any]
) -> tuple[list[float], TemplateSupply | None]:
    """The lengths of cold starts, and what is known of the template, if starts may be forked.

    `starts`: as `/api/v1/hotplate/deployments/NAME/cold_starts` answers, the newest first, of one
    service; `learnt_s`: what the decider has learnt of them, forks and others, 1 value or more;
    `standby`: as `/api/v1/hotplate/standby` answers.
    """
    told = [one for one in starts if one.get("pool") and one["ready_at"]]
    pools = {pool["pool"]: pool for pool in standby.get("pools", ())}
    pool = pools.get(told[0]["pool"]) if told else None
    if pool is None or pool["unforkable"]:
        return list(learnt_s), None
    cold = [one for one in told if not one["forked"]][:LAST]
    # Where none is on record any longer, the decider may remember one: it took longest.
    cold_s = [_length_s(one) for one in cold] or [max(learnt_s)]
    forks_s = [_length_s(one) for one in told if one["forked"]][:LAST]
    # Until one was forked, the same service's start inside a cold process tells what is left.
    forks_s = forks_s or [_length_s(one, INSIDE) for one in cold] or [min(learnt_s)]
    return cold_s, _supply(pool, standby["settings"], forks_s)


def spread(values: Sequence[float]) -> list[float]:
    """The values in an order in which any first few of them are spread over all, the median first
    and the extremes last (van der Corput's sequence of places)."""
    ordered, bits = sorted(values), len(values).bit_length()
    mirrored = (int(f"{number:0{bits}b}"[::-1], 2) for number in (*range(1, 1 << bits), 0))
    places = dict.fromkeys(each * len(ordered) >> bits for each in mirrored)
    return [ordered[place] for place in places]


def _supply(
    pool: Mapping[str, Any], settings: Mapping[str, Any], forks_s: Sequence[float]
) -> TemplateSupply:
    making_s = pool["refill_s"]
    there_at = 0.0 if pool["templates"] else making_s if pool["making"] else math.inf
    return TemplateSupply(
        spread(forks_s), there_at, settings["calm_s"], making_s, settings["unused_s"]
    )


def _length_s(start: Mapping[str, Any], phases: Sequence[str] = ()) -> float:
    """What it took, and the next one will take too; or the shares of these phases of it."""
    share_s = {phase["name"]: 0.0 for phase in start["phases"]}
    for phase in start["phases"]:
        share_s[phase["name"]] += phase["share_s"]
    if phases:
        return max(SHORTEST_S, sum(share_s.get(name, 0.0) for name in phases))
    ready_at, wanted_at = map(datetime.fromisoformat, (start["ready_at"], start["created_at"]))
    once_s = sum(share_s.get(name, 0.0) for name in ONCE)
    return max(SHORTEST_S, (ready_at - wanted_at).total_seconds() - once_s)
