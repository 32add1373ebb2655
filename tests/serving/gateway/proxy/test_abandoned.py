"""Whose slots are not waited for, by the clock alone."""

from __future__ import annotations

from hotplate.serving.gateway.proxy.abandoned import Abandoned


def test_a_handler_is_abandoned_when_its_time_is_over_until_it_ends() -> None:
    abandoned: Abandoned[str] = Abandoned()
    assert abandoned.next_at is None
    abandoned.caller_gone("a", "r1", now=100.0, after_s=10.0)
    abandoned.caller_gone("b", "r1", now=104.0, after_s=10.0)
    abandoned.caller_gone("c", "r2", now=104.0, after_s=10.0)
    assert abandoned.next_at == 110.0
    assert abandoned.by_replica == {}
    assert not abandoned.due(109.9)
    assert abandoned.due(110.0) == ["a"]
    assert abandoned.next_at == 114.0
    assert abandoned.by_replica == {"r1": 1}
    assert abandoned.due(120.0) == ["b", "c"]
    assert abandoned.by_replica == {"r1": 2, "r2": 1}
    assert abandoned.ended("b") and abandoned.ended("c")
    assert abandoned.next_at is None
    assert abandoned.by_replica == {"r1": 1}


def test_a_handler_that_ends_in_time_is_not_abandoned() -> None:
    abandoned: Abandoned[str] = Abandoned()
    abandoned.caller_gone("a", "r1", now=0.0, after_s=10.0)
    assert not abandoned.ended("a")
    assert abandoned.next_at is None
    assert not abandoned.due(1000.0)
    assert not abandoned.ended("never heard of")


def test_the_first_time_that_a_caller_is_said_to_have_gone_counts() -> None:
    abandoned: Abandoned[str] = Abandoned()
    abandoned.caller_gone("a", "r1", now=0.0, after_s=10.0)
    abandoned.caller_gone("a", "r1", now=5.0, after_s=10.0)
    assert abandoned.due(10.0) == ["a"]
