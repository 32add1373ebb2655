"""Binary scaling: queries as the operators write them, and what is not known changes nothing."""

from __future__ import annotations

import math

import pytest

from hotplate.autoscaler.binary import RESUMED_S, STALE_S, BinaryDecider, BinaryPolicy, Reading
from hotplate.autoscaler.promql import rewritten, split_queries

UNACKED = (
    'max_over_time(rabbitmq_queue_messages_unacked{queue="celery-model-training-tasks-gpu"}[30m])'
)
READY = UNACKED.replace("unacked", "ready")
RAY = 'max_over_time(clamp_min(sum(ray_tasks{State!~"FINISHED|FAILED"}[15s]), 0)[30m]) or vector(0)'
POLICY = BinaryPolicy(2, window_s=1800)


def test_queries_are_split_at_the_top_only() -> None:
    assert split_queries(f"{UNACKED}&{READY}") == (UNACKED, READY)
    assert split_queries(' a{q="x&y"} & b{r=~"\\"&}"} &&') == ('a{q="x&y"}', 'b{r=~"\\"&}"}')
    assert split_queries("a{q='&', r=`\\`}&c") == ("a{q='&', r=`\\`}", "c")
    assert split_queries(" & ") == ()


def test_the_known_broken_shape_becomes_a_subquery_and_nothing_else_changes() -> None:
    fixed = 'max_over_time(clamp_min(sum(ray_tasks{State!~"FINISHED|FAILED"}), 0)[30m:15s])'
    assert rewritten(RAY) == f"{fixed} or vector(0)"
    for query in (UNACKED, READY, rewritten(RAY), "sum(x[5m])", "max_over_time(x[30m])"):
        assert rewritten(query) == query


def test_it_goes_on_at_once_and_off_after_the_window() -> None:
    binary = BinaryDecider(POLICY, live=0, now=0.0)
    assert binary.decide([Reading(0, at=0)], busy=0, live=0, now=0.0).desired == 0
    up = binary.decide([Reading(0, at=15), Reading(3, at=15)], busy=0, live=0, now=15.0)
    assert (up.desired, up.reason) == (2, "0 of 2: a query returns 3")
    silent = binary.decide([Reading(0, at=30)], busy=0, live=2, now=30.0)
    assert (silent.desired, silent.next_at) == (2, 1830.0)
    assert silent.reason == "2 of 2: all queries have been 0 for 0 s, off after 1800 s"
    assert binary.decide([Reading(0, at=1829)], busy=0, live=2, now=1829.9).desired == 2
    off = binary.decide([Reading(0, at=1830)], busy=0, live=2, now=1830.0)
    assert (off.desired, off.reason) == (0, "2 of 0: all queries have been 0 for 1800 s")


@pytest.mark.parametrize(
    "unknown",
    [
        Reading(None, "Prometheus cannot be reached", 2000.0),
        Reading(math.nan, at=2000.0),
        Reading(0, at=2000.0 - STALE_S - 1),
    ],
    ids=["error", "NaN", "stale"],
)
@pytest.mark.parametrize("live", [0, 2])
def test_what_is_not_known_holds_the_state_and_the_silence_begins_anew(
    unknown: Reading, live: int
) -> None:
    binary = BinaryDecider(POLICY, live=live, now=0.0)
    zero = Reading(0, at=10)
    assert binary.decide([zero], busy=0, live=live, now=10.0).desired == live
    held = binary.decide([Reading(0, at=2000.0), unknown], busy=0, live=live, now=2000.0)
    assert held.desired == live
    assert "it stays on: " in held.reason or "it stays off: " in held.reason
    later = Reading(0, at=2015.0)
    assert binary.decide([later], busy=0, live=live, now=2015.0).desired == live


def test_one_query_above_zero_is_enough_whatever_the_others_say() -> None:
    binary = BinaryDecider(POLICY, live=0, now=0.0)
    readings = [Reading(None, "down"), Reading(1, at=5.0)]
    assert binary.decide(readings, busy=0, live=0, now=5.0).desired == 2


def test_a_running_job_keeps_its_replica_and_zero_replicas_means_off() -> None:
    binary = BinaryDecider(BinaryPolicy(2, window_s=0), live=2, now=0.0)
    kept = binary.decide([Reading(0, at=1.0)], busy=1, live=2, now=1.0)
    assert kept.desired == 1
    assert kept.reason.endswith("1 busy replica may finish first")
    assert binary.decide([Reading(0, at=2.0)], busy=0, live=1, now=2.0).desired == 0
    never = BinaryDecider(BinaryPolicy(0), live=0, now=0.0)
    assert never.decide([Reading(5, at=1.0)], busy=0, live=0, now=1.0).desired == 0


def test_a_short_restart_goes_on_with_the_state_and_the_silence_and_a_long_one_begins_it_anew() -> (
    None
):
    before = BinaryDecider(POLICY, live=2, now=0.0)
    before.decide([Reading(0, at=10)], busy=0, live=2, now=10.0)
    kept = before.memory(1000.0)
    assert kept == {"on": True, "silent_s": 990.0}
    after = BinaryDecider(POLICY, 2, 5.0, kept, away_s=30.0)
    assert after.decide([], busy=0, live=2, now=5.0).desired == 2
    assert after.decide([Reading(0, at=20)], busy=0, live=2, now=20.0).desired == 2
    ends_at = 5.0 - 30.0 - 990.0 + 1800.0
    assert after.decide([Reading(0, at=ends_at)], busy=0, live=2, now=ends_at).desired == 0
    late = BinaryDecider(POLICY, 2, 5.0, kept, away_s=RESUMED_S + 1)
    assert late.decide([Reading(0, at=ends_at)], busy=0, live=2, now=ends_at).desired == 2
    silent = BinaryDecider(POLICY, 2, 5.0, kept, away_s=30.0)
    silent.decide([], busy=0, live=2, now=5.0 + RESUMED_S)
    assert silent.decide([Reading(0, at=ends_at)], busy=0, live=2, now=ends_at).desired == 2
    off = BinaryDecider(POLICY, 2, 5.0, {"on": False, "silent_s": None}, away_s=3000.0)
    assert off.decide([Reading(None, "down")], busy=0, live=2, now=6.0).desired == 0


def test_a_state_that_is_kept_is_one_of_all_replicas_and_never_of_more() -> None:
    """They were stopped with the platform; or the operator says fewer now."""
    unknown = [Reading(None, "down")]
    stopped = BinaryDecider(POLICY, 0, 5.0, {"on": True, "silent_s": None}, away_s=3000.0)
    assert stopped.decide(unknown, busy=0, live=0, now=6.0).desired == 2
    fewer = BinaryDecider(POLICY, 5, 5.0)
    assert fewer.decide(unknown, busy=0, live=5, now=6.0).desired == 2
    assert fewer.decide(unknown, busy=3, live=5, now=6.0).desired == 3


@pytest.mark.parametrize("silent_s", [math.nan, math.inf, -1.0, "long"])
def test_a_silence_that_is_no_time_begins_anew(silent_s: object) -> None:
    after = BinaryDecider(POLICY, 2, 5.0, {"on": True, "silent_s": silent_s}, away_s=1.0)
    assert after.decide([Reading(0, at=6.0)], busy=0, live=2, now=6.0).desired == 2
