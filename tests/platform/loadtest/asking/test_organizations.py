"""Which organization asks next."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.asking.organizations import parse, turns


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("acme=3,beta=1", {"acme": 3, "beta": 1}),
        ("acme, beta", {"acme": 1, "beta": 1}),
        ("acme=30,beta=10", {"acme": 3, "beta": 1}),
        ("a=10000", {"a": 1}),
    ],
)
def test_weights_are_read_in_their_lowest_terms(text: str, weights: dict[str, int]) -> None:
    assert parse(text) == weights


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "nothing is not NAME=WEIGHT"),
        ("acme=3,,b=1", "nothing is not NAME=WEIGHT"),
        ("=3", "=3 is not NAME=WEIGHT"),
        ("a b=3", "a b=3 is not NAME=WEIGHT"),
        ("a\r\nX: 1=3", "is not NAME=WEIGHT"),
        ("café=3", "café=3 is not NAME=WEIGHT"),
        ("acme=0", "the weight of acme is not a whole number from 1 to 10000"),
        ("acme=-1", "the weight of acme is not"),
        ("acme=1.5", "the weight of acme is not"),
        ("acme=nan", "the weight of acme is not"),
        ("acme=99999", "the weight of acme is not"),
        ("acme=1,acme=2", "acme appears twice"),
        ("a=9999,b=9998", "add up to more than 10000"),
    ],
)
def test_what_is_no_weight_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        parse(text)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_each_comes_as_often_as_its_weight_says_and_never_long_after_its_turn(
    shares: list[int],
) -> None:
    weights = {f"o{number}": share for number, share in enumerate(shares)}
    found = turns(weights)
    assert Counter(found) == dict(enumerate(shares))
    whole = sum(shares)
    for place, share in enumerate(shares):
        for end in range(1, whole + 1):
            assert abs(found[:end].count(place) - end * share / whole) < len(shares)


def test_turns_are_spread() -> None:
    assert turns({"acme": 3, "beta": 1}) == (0, 0, 1, 0)
    assert turns({}) == ()
