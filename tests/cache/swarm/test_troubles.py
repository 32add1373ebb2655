"""Which chunk from whom, when peers stall, lie, are busy or leave: the planner alone."""

from __future__ import annotations

from hotplate.cache.errors import OriginUnavailable
from hotplate.cache.swarm.assignment import ORIGIN, Missed
from hotplate.cache.swarm.chunk_picker import LACKS_S
from hotplate.cache.swarm.participants import LATE_S
from hotplate.cache.swarm.peer_scores import PAUSE_S
from tests.cache.swarm.test_chunk_picker import ALL, drain, receive, swarm_of, take


def test_a_peer_that_stalls_is_avoided_for_a_while_and_its_chunks_go_elsewhere() -> None:
    swarm = swarm_of()
    receive(swarm, "a", ALL)
    step = take(swarm)
    assert swarm.missed(step, Missed.STALLED, 2.0) is None
    assert take(swarm, 2.1).source == ORIGIN
    assert take(swarm, 60.0).source == "a"


def test_a_peer_that_gave_wrong_bytes_is_not_asked_again() -> None:
    swarm = swarm_of()
    receive(swarm, "a", ALL)
    swarm.missed(take(swarm), Missed.CORRUPT, 2.0)
    receive(swarm, "a", ALL)
    assert {one.source for one in drain(swarm, 1000.0)} == {ORIGIN}


def test_what_only_a_stranger_has_is_waited_for_until_it_stalls() -> None:
    swarm = swarm_of()
    receive(swarm, "a", ALL)
    steps = drain(swarm, 1.0)
    assert {one.source for one in steps} == {"a"}
    assert swarm.next(20.0, False, True) is None  # it is slow, and here
    for step in steps:
        swarm.missed(step, Missed.STALLED, 20.0)
    assert {one.source for one in drain(swarm, 20.0)} == {ORIGIN}


def test_a_peer_that_gave_right_chunks_and_stalls_once_is_asked_again_and_not_the_origin() -> None:
    swarm = swarm_of()
    receive(swarm, "a", ALL)
    swarm.verified(take(swarm), 0.1, 1.0)
    steps = drain(swarm, 1.0)
    for step in steps:
        swarm.missed(step, Missed.STALLED, 4.0)
    assert swarm.next(4.0, False, True) is None
    again = take(swarm, 4.0 + PAUSE_S)
    assert again.source == "a"
    swarm.missed(again, Missed.STALLED, 7.0)
    assert take(swarm, 7.0).source == ORIGIN


def test_a_peer_that_does_not_know_the_content_is_asked_again_after_its_next_greeting() -> None:
    swarm = swarm_of()
    receive(swarm, "a", ALL)
    swarm.missed(take(swarm), Missed.LACKS, 2.0)
    assert swarm.next(2.0, False, True) is None
    assert take(swarm, 2.0 + LACKS_S).source == "a"


def test_a_busy_peer_is_asked_again_when_it_said() -> None:
    swarm = swarm_of()
    receive(swarm, "a", ALL)
    swarm.missed(take(swarm), Missed.BUSY, 2.0, retry_s=0.5)
    assert swarm.next(2.4, False, False) is None
    assert swarm.wakes_at(2.4) == 2.5
    assert take(swarm, 2.5).source == "a"


def test_a_peer_that_only_promises_is_passed_over_in_the_end() -> None:
    swarm = swarm_of(1)
    swarm.chunks.want([0])
    receive(swarm, "a", origin_fetches=1)
    now = 1.0
    while (step := take(swarm, now)).source == "a":
        assert now <= 2.0 + LATE_S
        now += 1.0
        swarm.missed(step, Missed.NOT_YET, now)
    assert step.source == ORIGIN and now >= LATE_S


def test_a_peer_that_cannot_have_it_from_the_origin_is_passed_over_at_once() -> None:
    swarm = swarm_of(1)
    receive(swarm, "a", origin_fetches=1)
    step = take(swarm)
    assert step.source == "a"
    receive(swarm, "a", now=2.0)
    swarm.missed(step, Missed.CANNOT, 2.0)
    assert take(swarm, 2.0).source == ORIGIN


def test_a_pause_after_a_failure_ends_when_a_peer_gets_the_chunk() -> None:
    swarm = swarm_of(1)
    assert swarm.failed(take(swarm), OriginUnavailable("down"), 1.0) is None
    assert swarm.next(1.0, False, True) is None
    receive(swarm, "a", 1)
    assert take(swarm).source == "a"


def test_nothing_for_thirty_seconds_is_the_end_though_peers_promise() -> None:
    swarm = swarm_of(1)
    swarm.chunks.want([0])
    receive(swarm, "a", origin_fetches=1)
    now, error = 1.0, None
    while error is None:
        step = take(swarm, now)
        now += 1.0
        missed = step.source != ORIGIN
        down = OriginUnavailable("down")
        error = swarm.missed(step, Missed.NOT_YET, now) if missed else swarm.failed(step, down, now)
        now = max(now, swarm.wakes_at(now) or now)
    assert isinstance(error, OriginUnavailable) and 30.0 <= now <= 35.0


def test_what_peers_contradict_each_other_on_comes_from_the_origin_and_the_liar_is_banned() -> None:
    swarm = swarm_of(3)
    receive(swarm, "liar", 0b111)
    receive(swarm, "peer", 0b111)
    one, two = drain(swarm)  # a stranger is asked for one chunk
    step, other = (one, two) if one.source == "liar" else (two, one)
    assert swarm.witnesses(step, 1.0) == ["peer"]
    swarm.attestations.record("peer", step.index, ["right"], 1.0)
    assert not swarm.attestations.accept(step.index, "liar", "wrong", 1.0)
    swarm.missed(step, Missed.DISPUTED, 1.0)
    asked = take(swarm)
    assert (asked.index, asked.source) == (step.index, ORIGIN)
    assert swarm.attestations.resolve(asked.index, "right", 1.0) == ({"liar"}, [])
    swarm.verified(asked, 0.1, 1.0)
    swarm.verified(other, 0.1, 1.0)
    assert [one.source for one in drain(swarm)] == ["peer"]
    assert swarm.witnesses(other, 1.0) == []
