"""Whether a peer may be asked, by how it has behaved."""

from __future__ import annotations

import pytest

from hotplate.cache.swarm.peer_scores import (
    BAN_S,
    PAUSE_S,
    PEER_REQUESTS,
    PROBE_AFTER_S,
    SLOW_FACTOR,
    SLOW_MIN_S,
    SUSPECT_S,
    PeerScores,
)

NOW = 100.0


def asked_at_once(scores: PeerScores, *, alone: bool = False) -> int:
    """How many requests may go to the peer at once."""
    count = 0
    while scores.free("a", NOW, alone):
        scores.request_began("a", NOW)
        count += 1
    for _ in range(count):
        scores.request_ended("a", NOW)
    return count


def test_a_peer_is_asked_for_more_once_it_has_given_a_chunk() -> None:
    scores = PeerScores()
    assert scores.free("a", NOW)
    assert not scores.proven("a")
    assert asked_at_once(scores) == 1
    assert asked_at_once(scores, alone=True) == PEER_REQUESTS
    scores.delivered("a", 1.0)
    assert scores.proven("a")
    assert asked_at_once(scores) == PEER_REQUESTS


def test_requests_are_counted_by_peer_and_the_least_busy_is_chosen() -> None:
    scores = PeerScores()
    assert scores.requests("a") == 0
    for peer in ("a", "a", "b"):
        scores.request_began(peer, NOW)
    assert [scores.requests(peer) for peer in "abc"] == [2, 1, 0]
    assert scores.least_busy("seed", ["a", "b"]) == "b"
    assert scores.least_busy("seed", ["a", "b", "c"]) == "c"
    assert scores.least_busy("seed", []) is None
    scores.request_ended("a", NOW)
    assert scores.requests("a") == 1
    chosen = {scores.least_busy(f"seed {n}", ["x", "y"]) for n in range(20)}
    assert chosen == {"x", "y"}


def test_a_peer_is_probed_when_it_has_been_silent() -> None:
    scores = PeerScores()
    assert scores.needs_probe("a", NOW), "it is unknown"
    scores.delivered("a", 1.0)
    assert scores.needs_probe("a", NOW), "no request was answered"
    scores.request_began("a", NOW)
    assert not scores.needs_probe("a", NOW + 60), "it is being asked"
    scores.request_ended("a", NOW + 60)
    assert not scores.needs_probe("a", NOW + 60 + PROBE_AFTER_S - 0.01)
    assert scores.needs_probe("a", NOW + 60 + PROBE_AFTER_S)


def state_of(scores: PeerScores, now: float) -> tuple[bool, bool, bool]:
    return scores.trusted("a", now), scores.free("a", now), scores.doubted("a")


def test_a_peer_that_stalls_is_suspected_twice_as_long_each_time() -> None:
    scores, now = PeerScores(), NOW
    assert state_of(scores, now) == (True, True, False)
    for pause_s in (SUSPECT_S, 2 * SUSPECT_S, 4 * SUSPECT_S, 8 * SUSPECT_S, 160.0, 300.0, 300.0):
        scores.stalled("a", now)
        scores.stalled("a", now + pause_s - 0.01)  # another request of before
        assert state_of(scores, now + pause_s - 0.01) == (False, False, True)
        assert scores.wakes_at(now) == now + pause_s
        now += pause_s
        assert state_of(scores, now) == (True, True, True)
        assert scores.wakes_at(now) is None
    scores.delivered("a", 1.0)
    assert state_of(scores, now) == (True, True, False)
    scores.stalled("a", now)
    assert state_of(scores, now + PAUSE_S - 0.01) == (True, False, False), "it may be busy"
    assert not scores.proven("a")
    scores.stalled("a", now + PAUSE_S)
    assert scores.wakes_at(now + PAUSE_S) == now + PAUSE_S + SUSPECT_S


def test_a_peer_that_lied_is_banned() -> None:
    scores = PeerScores()
    assert not scores.is_banned("a", NOW)
    scores.busy("a", 1.0, NOW)
    assert not scores.is_banned("a", NOW)
    scores.ban("a", NOW)
    for now, banned in ((NOW + BAN_S - 1, True), (NOW + BAN_S, False)):
        assert scores.is_banned("a", now) is banned
        assert state_of(scores, now) == (not banned, not banned, False)


def test_a_busy_peer_is_asked_when_it_said_and_never_sooner() -> None:
    scores = PeerScores()
    scores.busy("a", 2.0, NOW)
    scores.busy("a", 1.0, NOW)
    assert state_of(scores, NOW + 1.9) == (True, False, False)
    assert state_of(scores, NOW + 2.0) == (True, True, False)
    scores.busy("b", 1.0, NOW)
    assert scores.wakes_at(NOW) == NOW + 1.0
    assert scores.wakes_at(NOW + 1.0) == NOW + 2.0


@pytest.mark.parametrize(
    ("took_s", "patience_s"),
    [
        ([], 30.0),
        ([1.0], SLOW_MIN_S),
        ([2.0], 2.0 * SLOW_FACTOR),
        ([2.0, 4.0], 2.2 * SLOW_FACTOR),
    ],
)
def test_one_transfer_may_take_several_times_the_usual(
    took_s: list[float], patience_s: float
) -> None:
    scores = PeerScores()
    for seconds in took_s:
        scores.delivered("a", seconds)
    assert scores.patience_s == pytest.approx(patience_s)
