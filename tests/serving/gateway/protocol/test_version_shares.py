"""Which points belong to which version, before and after weights change."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.serving.gateway.protocol.version_shares import MAIN, VersionShare, laid_out

POINTS = 400
"""A quarter of a percent each; every weight below is a whole number of percent."""


def share(version: str, weight: float) -> VersionShare:
    return VersionShare(version, f"acme/echo#{version}", weight)


def owners(versions: Sequence[VersionShare]) -> list[str]:
    """The version of the middle of each step through the range; one point has at most one."""
    found = []
    for number in range(POINTS):
        point = (number + 0.5) * 100 / POINTS
        mine = [v.id for v in versions if any(a <= point < b for a, b in v.parts)]
        assert len(mine) <= 1
        found.append(mine[0] if mine else MAIN)
    return found


def changed(versions: Sequence[VersionShare], weights: Mapping[str, float]) -> list[VersionShare]:
    """The versions with these weights: those that stay keep their parts until they are laid out."""
    before = {version.id: version for version in versions}
    return [
        replace(before.get(name, share(name, 0)), weight=weight) for name, weight in weights.items()
    ]


def assert_stays(before: list[str], after: list[str], weights: Mapping[str, float]) -> None:
    """Who changes its version comes from `main` or from one that shrinks, and goes to `main` or to
    one that grows."""
    for old, new in zip(before, after, strict=True):
        if old != new:
            assert old == MAIN or weights.get(old, 0) * POINTS / 100 < before.count(old)
            assert new == MAIN or weights[new] * POINTS / 100 > before.count(new)


WEIGHTS = st.integers(0, 100)


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), WEIGHTS), min_size=2, max_size=8))
def test_nobody_moves_but_to_what_grows_or_out_of_what_shrinks(
    history: list[dict[str, float]],
) -> None:
    versions: Sequence[VersionShare] = ()
    for drawn in history:
        total, weights = 0.0, {}
        for name, weight in drawn.items():
            weights[name] = min(weight, 100 - total)
            total += weights[name]
        before = owners(versions)
        versions = laid_out(changed(versions, weights))
        after = owners(versions)
        for name, weight in weights.items():
            assert after.count(name) == weight * POINTS / 100
        assert_stays(before, after, weights)


def test_two_versions_never_meet_though_nobody_stores_their_parts() -> None:
    steps = range(0, 101, 4)
    table = {
        (a, b): owners(laid_out([share("a", a), share("b", b)]))
        for a, b in itertools.product(steps, steps)
        if a + b <= 100
    }
    for (a, b), before in table.items():
        assert (before.count("a"), before.count("b")) == (a * 4, b * 4)
        for grown in ((a + 4, b), (a, b + 4)):
            if grown in table:
                assert_stays(before, table[grown], dict(zip("ab", grown, strict=True)))


@pytest.mark.parametrize("weights", [(60, 60), (100, 1), (0, 0), (100,), (33.3, 33.3, 33.4)])
def test_the_range_is_never_given_twice(weights: tuple[float, ...]) -> None:
    versions = laid_out([share(str(number), weight) for number, weight in enumerate(weights)])
    assert owners(versions).count(MAIN) == max(0, round(POINTS * (100 - sum(weights)) / 100))


def test_what_is_laid_out_already_stays_as_it_is() -> None:
    once = laid_out([share("a", 10), share("b", 20), share("c", 33.3)])
    assert laid_out(once) == once
