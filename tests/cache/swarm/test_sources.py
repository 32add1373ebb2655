"""Where one chunk is taken from, by what is known of the two peers at that moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hotplate.cache.swarm.assignment import HERE, ORIGIN, Assignment, Missed
from hotplate.cache.swarm.chunk_picker import CANNOT_S, ChunkPicker
from hotplate.cache.swarm.participants import LATE_S, PeerState
from hotplate.cache.swarm.peer_scores import PROBE_AFTER_S, SUSPECT_S
from tests.cache.swarm.test_chunk_picker import owns, picker_of, receive

NOW = 100.0
BEFORE = next(name for name in "abcdef" if not owns(name))
"""A peer that comes before this node in the order of chunk 0."""
AFTER = next(name for name in "abcdef" if owns(name))


def step_of(
    *known: Callable[[ChunkPicker], None],
    origin: bool = True,
    peers: bool = True,
    waits: bool = True,
    wanted_only: bool = False,
) -> Assignment | None:
    """How a node that knows this goes on."""
    picker = picker_of(1)
    for each in known:
        each(picker)
    return picker.next(NOW, wanted_only, origin, peers, waits)


def takes_part(peer: str) -> Callable[[ChunkPicker], None]:
    return lambda picker: receive(picker, peer)


def has(peer: str) -> Callable[[ChunkPicker], None]:
    return lambda picker: receive(picker, peer, have=1)


def fetches(peer: str, since: float = NOW) -> Callable[[ChunkPicker], None]:
    return lambda picker: receive(picker, peer, origin_fetches=1, now=since)


def missed(peer: str, why: Missed, at: float = NOW) -> Callable[[ChunkPicker], None]:
    """The peer was asked once for the chunk, and did not give it."""

    def know(picker: ChunkPicker) -> None:
        picker.next(at, True, False)
        picker.missed(Assignment(0, peer, ""), why, at)

    return know


def differs(peer: str) -> Callable[[ChunkPicker], None]:
    """The peer knows other participants."""
    return lambda picker: picker.state.receive(peer, PeerState(0, view=1, number=1), NOW)


def hinted(peer: str) -> Callable[[ChunkPicker], None]:
    return lambda picker: picker.state.add_hints(0, [peer])


def wanted(picker: ChunkPicker) -> None:
    picker.state.chunks.want([0])


def unsettled(picker: ChunkPicker) -> None:
    picker.settled = False


def local(picker: ChunkPicker) -> None:
    picker.local = True


def disputed(picker: ChunkPicker) -> None:
    picker.state.attestations.disputed = 1


@pytest.mark.parametrize(
    ("known", "source", "reason"),
    [
        ([], ORIGIN, "no peer has it"),
        ([takes_part(AFTER)], ORIGIN, "owned here"),
        ([takes_part(BEFORE)], BEFORE, "fetches it from the origin"),
        ([takes_part(BEFORE), takes_part(AFTER)], BEFORE, "fetches it from the origin"),
        ([has(AFTER)], AFTER, "has it"),
        ([has(AFTER), unsettled], AFTER, "has it"),
        ([takes_part(BEFORE), has(AFTER)], AFTER, "has it"),
        (
            [takes_part(BEFORE), hinted(AFTER), takes_part(AFTER)],
            BEFORE,
            "fetches it from the origin",
        ),
        (
            [takes_part(BEFORE), takes_part(AFTER), hinted(AFTER)],
            AFTER,
            "has it according to another peer",
        ),
        ([fetches(AFTER)], AFTER, "fetches it from the origin"),
        ([fetches(AFTER), takes_part(BEFORE)], AFTER, "fetches it from the origin"),
        ([fetches(AFTER, since=NOW - LATE_S)], ORIGIN, "owned here"),
        ([local], HERE, "was here before"),
        ([local, has(AFTER), unsettled], HERE, "was here before"),
        ([has(AFTER), disputed], ORIGIN, "peers contradict each other"),
        ([has(AFTER), missed(AFTER, Missed.STALLED)], ORIGIN, "owned here"),
        ([has(BEFORE), missed(BEFORE, Missed.STALLED)], ORIGIN, "owned here"),
        ([has(AFTER), missed(AFTER, Missed.STALLED, NOW - SUSPECT_S)], AFTER, "has it"),
        (
            [has(BEFORE), missed(BEFORE, Missed.STALLED, NOW - SUSPECT_S), has(AFTER)],
            AFTER,
            "has it",
        ),
        ([has(AFTER), missed(AFTER, Missed.CANNOT)], ORIGIN, "owned here"),
        ([has(AFTER), missed(AFTER, Missed.CANNOT, NOW - CANNOT_S)], AFTER, "has it"),
        ([has(AFTER), missed(AFTER, Missed.CORRUPT)], ORIGIN, "owned here"),
        (
            [takes_part(BEFORE), missed(BEFORE, Missed.NOT_YET)],
            BEFORE,
            "fetches it from the origin",
        ),
    ],
)
@pytest.mark.parametrize("urgent", [False, True])
def test_a_chunk_is_taken_where_it_comes_soonest(
    known: list[Callable[[ChunkPicker], None]], source: str, reason: str, urgent: bool
) -> None:
    step = step_of(*known, *([wanted] if urgent else []), wanted_only=urgent)
    waits = reason == "fetches it from the origin"
    assert step == Assignment(0, source, reason, urgent, waits)


@pytest.mark.parametrize(
    ("known", "free"),
    [
        ([], {"origin": False}),
        ([unsettled], {}),
        ([], {"wanted_only": True}),
        ([takes_part(AFTER)], {"origin": False}),
        ([takes_part(AFTER), unsettled], {}),
        ([takes_part(BEFORE)], {"waits": False}),
        ([has(AFTER)], {"peers": False}),
        ([has(AFTER), disputed], {"origin": False}),
        ([differs(AFTER)], {}),
        ([hinted(AFTER), takes_part(AFTER)], {"origin": False}),
        ([takes_part(AFTER), hinted(AFTER)], {"origin": False, "peers": False}),
    ],
)
@pytest.mark.parametrize("urgent", [False, True])
def test_a_chunk_is_not_taken_while_nothing_may_be_asked(
    known: list[Callable[[ChunkPicker], None]], free: dict[str, bool], urgent: bool
) -> None:
    if not free.get("wanted_only"):
        known = [*known, *([wanted] if urgent else [])]
    assert step_of(*known, **free) is None


@pytest.mark.parametrize(
    ("asked_at", "urgent", "asked"),
    [
        (NOW - PROBE_AFTER_S, False, True),
        (NOW - PROBE_AFTER_S + 0.01, False, False),
        (NOW - PROBE_AFTER_S + 0.01, True, True),
    ],
)
def test_one_that_brings_a_chunk_is_asked_at_once_for_a_reader_and_else_now_and_then(
    asked_at: float, urgent: bool, asked: bool
) -> None:
    known = [takes_part(BEFORE), *([wanted] if urgent else [])]

    def has_asked(picker: ChunkPicker) -> None:
        step = picker.next(asked_at, False, False)
        assert step is not None
        picker.missed(step, Missed.NOT_YET, asked_at)

    assert (step_of(*known, has_asked) is not None) is asked
