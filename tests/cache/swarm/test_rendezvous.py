"""In which order the participants bring the chunks."""

from __future__ import annotations

import pytest

from hotplate.cache.swarm.rendezvous import Rendezvous

NAMES = "abcde"


def order_of(me: str, names: str = NAMES) -> Rendezvous:
    order = Rendezvous("key", me)
    order.set(name for name in names if name != me)
    return order


def test_all_nodes_have_the_same_order_in_which_each_place_comes_to_each_node_once() -> None:
    orders = {me: order_of(me) for me in NAMES}
    rounds = set()
    for block in range(20):
        around = ["".join(orders["a"].around(5 * block + place)) for place in range(5)]
        for me in NAMES:
            assert ["".join(orders[me].around(5 * block + place)) for place in range(5)] == around
        for places in zip(*around, strict=True):
            assert sorted(places) == list(NAMES)
        rounds.add(around[0])
    assert len(rounds) > 10, "each block has an order of its own"


@pytest.mark.parametrize("index", range(10))
def test_the_first_that_is_not_avoided_brings_a_chunk(index: int) -> None:
    order = order_of("c")
    around = list(order.around(index))
    before = around[: around.index("c")]
    assert list(order.before(index)) == before
    for avoided in range(len(before)):
        assert order.first(index, before[:avoided]) == before[avoided]
    assert order.first(index, before) is None


def test_others_that_join_change_the_order() -> None:
    order = Rendezvous("key", "a")
    assert list(order.around(7)) == ["a"]
    order.set("bcde")
    assert order.others == list("bcde")
    assert list(order.around(7)) == list(order_of("b").around(7))
    order.set("")
    assert list(order.around(7)) == ["a"]
