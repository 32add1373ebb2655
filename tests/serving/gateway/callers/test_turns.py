"""The order of a connection's requests, by the table alone."""

from __future__ import annotations

import random

import pytest

from hotplate.serving.gateway.callers.turns import (
    AWAITING,
    CLOSED,
    ENDING,
    FREE,
    NEVER,
    SERVING,
    TABLE,
    Turns,
)
from hotplate.serving.gateway.errors import BadRequest

NONSENSE = BadRequest("no HTTP")


def test_a_request_that_comes_whole_is_served_and_then_the_next_one() -> None:
    turns: Turns[str] = Turns()
    assert turns.is_free
    turns.begin("a")
    assert (turns.active, turns.reading, turns.state) == ("a", "a", SERVING)
    assert not turns.is_free
    turns.answered(whole=True)
    assert (turns.active, turns.reading, turns.state) == (None, None, FREE)


def test_what_was_sent_ahead_has_its_turn_in_its_order() -> None:
    turns: Turns[str] = Turns()
    turns.add("a")
    turns.add("b")
    assert (turns.next, turns.take()) == ("a", "a")
    assert turns.next is None, "a is served"
    assert turns.ahead == 1
    turns.answered(whole=True)
    assert turns.reading == "b"
    assert not turns.is_free
    assert turns.take() == "b"


def test_one_that_is_answered_before_its_body_is_here_is_read_on() -> None:
    turns: Turns[str] = Turns()
    turns.add("a")
    turns.take()
    turns.answered(whole=False)
    assert turns.reading == "a"
    turns.end()
    assert turns.is_ending
    assert turns.next is None


def test_a_body_is_awaited_until_its_request_is_taken_or_forsaken() -> None:
    turns: Turns[str] = Turns()
    turns.add("a")
    turns.wait_for_body("a")
    assert (turns.state, turns.awaited, turns.next) == (AWAITING, "a", "a")
    assert turns.stop_waiting() == "a"
    assert (turns.state, turns.awaited) == (FREE, None)
    assert turns.stop_waiting() is None
    assert turns.take() == "a"


@pytest.mark.parametrize("whole", [True, False])
def test_nonsense_comes_after_what_came_whole_and_in_place_of_what_did_not(whole: bool) -> None:
    turns: Turns[str] = Turns()
    turns.add("a")
    turns.add("b")
    turns.reject_rest(NONSENSE, whole=whole)
    taken = []
    while (following := turns.next) is not None:
        assert turns.take() is following
        taken.append(following)
        if following is NONSENSE:
            turns.end()
        else:
            turns.answered(whole=True)
    assert taken == (["a", "b", NONSENSE] if whole else ["a", NONSENSE])
    assert turns.is_ending


def test_what_is_served_is_not_refused_in_its_place() -> None:
    turns: Turns[str] = Turns()
    turns.add("a")
    turns.take()
    turns.reject_rest(NONSENSE, whole=False)
    assert (turns.active, turns.ahead) == ("a", 0)


def test_half_a_request_before_the_callers_end_has_no_turn() -> None:
    turns: Turns[str] = Turns()
    turns.add("a")
    turns.take()
    turns.drop_last()
    assert turns.active == "a"
    turns.add("b")
    turns.drop_last()
    assert turns.ahead == 0


def test_nothing_follows_once_it_is_closed() -> None:
    turns: Turns[str] = Turns()
    turns.add("a")
    turns.add("b")
    turns.take()
    turns.close()
    assert turns.is_closed
    assert turns.next is None
    turns.answered(whole=True)
    assert turns.next is None
    turns.end()
    assert turns.is_closed
    assert turns.clear() is None


def test_what_the_table_does_not_have_cannot_happen() -> None:
    turns: Turns[str] = Turns()
    with pytest.raises(AssertionError):
        turns.answered(whole=True)
    turns.begin("a")
    with pytest.raises(AssertionError):
        turns.begin("b")
    with pytest.raises(AssertionError):
        turns.end()


def test_every_state_can_be_closed_and_none_is_left_then() -> None:
    assert {row[-1] for row in TABLE} == {CLOSED}
    assert set(TABLE[CLOSED]) == {CLOSED}
    assert {state for row in TABLE for state in row} == {
        *(FREE, AWAITING, SERVING, ENDING, CLOSED, NEVER)
    }


@pytest.mark.parametrize("seed", range(20))
def test_on_any_walk_each_has_its_turn_once_and_in_order(seed: int) -> None:
    """Requests come at any moment; they begin, are awaited, and are answered at any other."""
    chance, turns = random.Random(seed), Turns[int]()
    served: list[int] = []
    add = 0
    for _ in range(400):
        step = chance.randrange(4)
        if step == 0:
            turns.add(add)
            add += 1
        elif step == 1 and turns.active is not None:
            turns.answered(whole=chance.random() < 0.5)
        elif step == 2 and turns.next is not None and turns.awaited is None:
            turns.wait_for_body(add)
        elif turns.next is not None:
            turns.stop_waiting()
            following = turns.take()
            assert isinstance(following, int)
            served.append(following)
        assert (turns.state == SERVING) == (turns.active is not None)
        assert (turns.state == AWAITING) == (turns.awaited is not None)
    assert served == list(range(len(served)))
    assert len(served) + turns.ahead == add
