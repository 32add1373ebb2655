"""Which chunk from whom, when peers stall, lie, are busy or leave: the planner alone."""

from __future__ import annotations

from hotplate.cache.errors import OriginUnavailable
from hotplate.cache.swarm.assignment import ORIGIN, Missed
from hotplate.cache.swarm.chunk_picker import LACKS_S
from hotplate.cache.swarm.participants import LATE_S
from hotplate.cache.swarm.peer_scores import PAUSE_S
from tests.cache.swarm.test_chunk_picker import ALL, drain, picker_of, receive, take


def test_a_peer_that_stalls_is_avoided_for_a_while_and_its_chunks_go_elsewhere() -> None:
    picker = picker_of()
    receive(picker, "a", ALL)
    step = take(picker)
    assert picker.missed(step, Missed.STALLED, 2.0) is None
    assert take(picker, 2.1).source == ORIGIN
    assert take(picker, 60.0).source == "a"


def test_a_peer_that_gave_wrong_bytes_is_not_asked_again() -> None:
    picker = picker_of()
    receive(picker, "a", ALL)
    picker.missed(take(picker), Missed.CORRUPT, 2.0)
    receive(picker, "a", ALL)
    assert {one.source for one in drain(picker, 1000.0)} == {ORIGIN}


def test_what_only_a_stranger_has_is_waited_for_until_it_stalls() -> None:
    picker = picker_of()
    receive(picker, "a", ALL)
    steps = drain(picker, 1.0)
    assert {one.source for one in steps} == {"a"}
    assert picker.next(20.0, False, True) is None  # it is slow, and here
    for step in steps:
        picker.missed(step, Missed.STALLED, 20.0)
    assert {one.source for one in drain(picker, 20.0)} == {ORIGIN}


def test_a_peer_that_gave_right_chunks_and_stalls_once_is_asked_again_and_not_the_origin() -> None:
    picker = picker_of()
    receive(picker, "a", ALL)
    picker.verified(take(picker), 0.1, 1.0)
    steps = drain(picker, 1.0)
    for step in steps:
        picker.missed(step, Missed.STALLED, 4.0)
    assert picker.next(4.0, False, True) is None
    again = take(picker, 4.0 + PAUSE_S)
    assert again.source == "a"
    picker.missed(again, Missed.STALLED, 7.0)
    assert take(picker, 7.0).source == ORIGIN


def test_a_peer_that_does_not_know_the_content_is_asked_again_after_its_next_greeting() -> None:
    picker = picker_of()
    receive(picker, "a", ALL)
    picker.missed(take(picker), Missed.LACKS, 2.0)
    assert picker.next(2.0, False, True) is None
    assert take(picker, 2.0 + LACKS_S).source == "a"


def test_a_busy_peer_is_asked_again_when_it_said() -> None:
    picker = picker_of()
    receive(picker, "a", ALL)
    picker.missed(take(picker), Missed.BUSY, 2.0, retry_s=0.5)
    assert picker.next(2.4, False, False) is None
    assert picker.wakes_at(2.4) == 2.5
    assert take(picker, 2.5).source == "a"


def test_a_peer_that_only_promises_is_passed_over_in_the_end() -> None:
    picker = picker_of(1)
    picker.state.chunks.want([0])
    receive(picker, "a", origin_fetches=1)
    now = 1.0
    while (step := take(picker, now)).source == "a":
        assert now <= 2.0 + LATE_S
        now += 1.0
        picker.missed(step, Missed.NOT_YET, now)
    assert step.source == ORIGIN and now >= LATE_S


def test_a_peer_that_cannot_have_it_from_the_origin_is_passed_over_at_once() -> None:
    picker = picker_of(1)
    receive(picker, "a", origin_fetches=1)
    step = take(picker)
    assert step.source == "a"
    receive(picker, "a", now=2.0)
    picker.missed(step, Missed.CANNOT, 2.0)
    assert take(picker, 2.0).source == ORIGIN


def test_a_pause_after_a_failure_ends_when_a_peer_gets_the_chunk() -> None:
    picker = picker_of(1)
    assert picker.failed(take(picker), OriginUnavailable("down"), 1.0) is None
    assert picker.next(1.0, False, True) is None
    receive(picker, "a", 1)
    assert take(picker).source == "a"


def test_nothing_for_thirty_seconds_is_the_end_though_peers_promise() -> None:
    picker = picker_of(1)
    picker.state.chunks.want([0])
    receive(picker, "a", origin_fetches=1)
    now, error = 1.0, None
    while error is None:
        step = take(picker, now)
        now += 1.0
        missed = step.source != ORIGIN
        down = OriginUnavailable("down")
        error = (
            picker.missed(step, Missed.NOT_YET, now) if missed else picker.failed(step, down, now)
        )
        now = max(now, picker.wakes_at(now) or now)
    assert isinstance(error, OriginUnavailable) and 30.0 <= now <= 35.0


def test_what_peers_contradict_each_other_on_comes_from_the_origin_and_the_liar_is_banned() -> None:
    picker = picker_of(3)
    receive(picker, "liar", 0b111)
    receive(picker, "peer", 0b111)
    one, two = drain(picker)  # a stranger is asked for one chunk
    step, other = (one, two) if one.source == "liar" else (two, one)
    assert picker.witnesses(step, 1.0) == ["peer"]
    picker.state.attestations.record("peer", step.index, ["right"], 1.0)
    assert not picker.state.attestations.accept(step.index, "liar", "wrong", 1.0)
    picker.missed(step, Missed.DISPUTED, 1.0)
    asked = take(picker)
    assert (asked.index, asked.source) == (step.index, ORIGIN)
    assert picker.state.attestations.resolve(asked.index, "right", 1.0) == ({"liar"}, [])
    picker.verified(asked, 0.1, 1.0)
    picker.verified(other, 0.1, 1.0)
    assert [one.source for one in drain(picker)] == ["peer"]
    assert picker.witnesses(other, 1.0) == []
