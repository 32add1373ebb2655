"""Which existing name a mistyped one is taken for."""

from __future__ import annotations

from hotplate.machine.nearest import nearest

NAMES = ("replicas", "concurrency", "priority")


def test_a_mistyped_name_is_taken_for_the_one_that_is_most_like_it() -> None:
    assert nearest("concurency", NAMES) == "concurrency"


def test_a_name_that_is_like_none_is_taken_for_none() -> None:
    assert nearest("colour", NAMES) is None
    assert nearest("anything", ()) is None


def test_how_alike_is_enough_is_for_the_caller_to_say() -> None:
    assert nearest("prio", NAMES, likeness=0.4) == "priority"
    assert nearest("prio", NAMES, likeness=0.7) is None
