from __future__ import annotations

import pytest

from hotplate.autoscaler.sharing.amounts import GIB, NOTHING, Amounts, amount_text, over, total

SOME = Amounts(gpus=2, cpus=3, memory_bytes=5 * GIB, replicas=7)


@pytest.mark.parametrize("name", Amounts._fields)
def test_amounts_are_within_a_limit_up_to_rounding_and_in_each_of_them(name: str) -> None:
    limit: float = getattr(SOME, name)
    assert SOME.within(SOME)
    assert SOME._replace(**{name: limit + 1e-10}).within(SOME)
    assert not SOME._replace(**{name: limit + 0.01}).within(SOME)


def test_rounding_is_not_over_a_limit() -> None:
    assert not over(0.1 + 0.2, 0.3)
    assert not over(0.3, 0.3)
    assert over(0.31, 0.3)


def test_so_much_of_each_is_added_in_each_of_them() -> None:
    sums = Amounts(gpus=6, cpus=9, memory_bytes=15 * GIB, replicas=21)
    assert SOME.plus(SOME, 2) == sums
    assert total([(SOME, 2), (SOME, 1)]) == sums
    assert total([]) == NOTHING == Amounts(0, 0, 0, 0)


def test_amounts_in_words() -> None:
    found = [
        amount_text(dimension, amount) for dimension, amount in enumerate((2, 0.5, 12 * GIB, 1))
    ]
    assert found == ["2 GPUs", "0.5 CPUs", "12 GiB of memory", "1 replica"]
    assert amount_text(0, 1.23456) == "1.23 GPUs"
