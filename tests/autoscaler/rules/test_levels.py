"""Which replicas are kept after their demand has gone, and what is learnt from its coming back."""

from __future__ import annotations

import math

import pytest

from hotplate.autoscaler.rules.keepalive import SHORTEST_S, KeepAlive, bucket_of
from hotplate.autoscaler.rules.levels import IdleLevel, KeptReplicas, Levels


def levels_of(*kept_s: float, proven: int = 0) -> tuple[Levels, KeepAlive]:
    """Levels that are kept for these times, the first one's first."""
    keep_alive = KeepAlive(0.0)
    return Levels(lambda level, _: kept_s[level - 1], keep_alive, proven), keep_alive


def test_nothing_is_demanded_at_first_and_what_runs_is_kept_from_then_on() -> None:
    levels, _ = levels_of(10.0, 5.0)
    assert (levels.demanded, levels.proven) == (0, 0)
    assert levels.kept(0, 1.0) == KeptReplicas(0, None, 0, math.inf)
    second = IdleLevel(1.0, 6.0, is_observed=False)
    assert levels.kept(2, 1.0) == KeptReplicas(2, second, 2, 6.0)
    assert second.kept_s == 5.0


def test_what_is_demanded_is_kept_as_far_as_it_runs() -> None:
    levels, _ = levels_of(10.0, 10.0, 10.0)
    levels.set_demand(2, 0.0)
    assert levels.kept(1, 0.0) == KeptReplicas(1, None, 0, math.inf)
    assert levels.kept(2, 0.0) == KeptReplicas(2, None, 0, math.inf)
    assert levels.kept(3, 0.0).replicas == 3


@pytest.mark.parametrize(
    ("kept_s", "now", "replicas", "until"),
    [
        ((10.0, 20.0, 30.0), 9.9, 3, 10.0),
        ((10.0, 20.0, 30.0), 10.0, 0, math.inf),  # the others would carry its demand
        ((30.0, 20.0, 10.0), 9.9, 3, 10.0),
        ((30.0, 20.0, 10.0), 10.0, 2, 20.0),
        ((30.0, 20.0, 10.0), 25.0, 1, 30.0),
        ((30.0, 10.0, 20.0), 15.0, 1, 30.0),
        ((30.0, 30.0, 30.0), 15.0, 3, 30.0),
    ],
)
def test_a_level_is_kept_for_its_time_while_those_below_it_are(
    kept_s: tuple[float, ...], now: float, replicas: int, until: float
) -> None:
    levels, _ = levels_of(*kept_s)
    levels.set_demand(3, -5.0)
    levels.set_demand(0, 0.0)
    kept = levels.kept(3, now)
    assert (kept.replicas, kept.level, kept.until) == (replicas, replicas, until)


def test_a_gap_that_was_seen_from_its_beginning_is_learnt() -> None:
    levels, keep_alive = levels_of(100.0, 100.0, 100.0)
    gap_s = 4 * SHORTEST_S
    levels.kept(1, 0.0)
    levels.set_demand(2, gap_s)
    assert keep_alive.to_json(gap_s) == {}, "nobody saw how these gaps began"
    levels.set_demand(1, 10.0)
    levels.set_demand(3, 10.0 + gap_s)
    (weights,) = keep_alive.to_json(10.0 + gap_s).values()
    assert {bucket: w for bucket, w in enumerate(weights) if w} == {bucket_of(gap_s): 1.0}
    levels.set_demand(0, 20.0)
    levels.forget()
    levels.set_demand(3, 30.0)
    assert list(keep_alive.to_json(30.0)) == ["2"], "what was forgotten is no gap"


def test_idle_times_begin_again_after_forgetting() -> None:
    levels, _ = levels_of(10.0)
    levels.set_demand(1, 0.0)
    levels.set_demand(0, 1.0)
    assert levels.idle(1, 5.0) == IdleLevel(1.0, 11.0, is_observed=True)
    levels.forget()
    assert levels.idle(1, 5.0) == IdleLevel(5.0, 15.0, is_observed=False)
    assert levels.idle(1, 6.0) == IdleLevel(5.0, 15.0, is_observed=False)


def test_a_replica_that_starts_ahead_is_kept_from_then_on() -> None:
    levels, _ = levels_of(10.0, 10.0)
    levels.set_demand(2, 0.0)
    levels.renew(2, 0.0)
    levels.set_demand(1, 1.0)
    levels.renew(2, 5.0)
    assert levels.idle(2, 6.0) == IdleLevel(1.0, 15.0, is_observed=True)
    levels.renew(2, 3.0)
    assert levels.idle(2, 6.0).until == 15.0, "it is never shortened"
    levels.renew(1, 5.0)
    assert levels.kept(1, 5.0) == KeptReplicas(1, None, 0, math.inf)


@pytest.mark.parametrize(
    ("demands", "proven"),
    [
        ([4], 0),
        ([4, 3], 0),
        ([4, 2], 4),
        ([4, 2, 3, 2], 4),
        ([2, 0], 2),
        ([4, 2, 6, 3], 6),
        ([4, 2, 3, 1], 4),
        ([5, 3, 2], 5),
    ],
)
def test_a_level_is_proven_once_demand_has_halved_since(demands: list[int], proven: int) -> None:
    levels, _ = levels_of(*[1.0] * 6)
    for now, demanded in enumerate(demands):
        levels.set_demand(demanded, float(now))
    assert levels.proven == proven
