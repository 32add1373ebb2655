"""How many chunks a node sends at a time, and when it says to ask again."""

from __future__ import annotations

import pytest

from hotplate.cache.swarm.upload_slots import UploadSlots


def test_a_node_without_a_slot_says_when_one_comes_free() -> None:
    slots = UploadSlots(2)
    assert [slots.begin(), slots.begin()] == [None, None]
    assert slots.sending == 2
    assert slots.begin() == 0.02, "nothing is known yet"
    slots.end(1.0)
    assert slots.sending == 1
    assert slots.begin() is None
    assert slots.begin() == pytest.approx(0.1), "two slots, and 0.2 s is usual now"
    for _ in range(30):
        slots.end(0.4)
        assert slots.begin() is None
    assert slots.begin() == pytest.approx(0.2, abs=0.001)
    for _ in range(30):
        slots.end(60.0)
        slots.begin()
    assert slots.begin() == 1.0
