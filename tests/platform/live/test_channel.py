"""What readers of a channel are told, however slow they are."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hotplate.platform.live.channel import (
    GONE_MAX,
    Channel,
    DocumentChannel,
    ListChannel,
    TailChannel,
)


def told(channel: Channel, seen: int | None) -> tuple[Any, int]:
    part = channel.after(seen)
    assert part is not None
    return json.loads(part.data), part.number


def lines(items: Any, missed: int) -> str:
    return json.dumps({"lines": [json.loads(each) for each in items], "dropped": missed})


def tail(items_max: int = 5, at_once: int = 3) -> TailChannel:
    return TailChannel(
        count(1).__next__, lines, items_max=items_max, chars_max=100, at_once=at_once
    )


def test_a_document_is_told_when_it_is_another_one() -> None:
    document = DocumentChannel(count(1).__next__)
    assert document.after(None) is None, "nothing is known yet"
    assert document.put("1")
    value, seen = told(document, None)
    assert value == 1
    assert not document.put("1")
    assert document.after(seen) is None
    assert document.put("2")
    assert document.put("null")
    assert told(document, seen)[0] is None, "what came between is not told"


def test_of_a_list_what_has_changed_is_told() -> None:
    listing = ListChannel(count(1).__next__)
    assert listing.after(None) is None
    assert listing.put([("a", "1"), ("b", "2")])
    listing.arrange(["b", "a"])
    value, seen = told(listing, None)
    assert value == {"items": [2, 1], "gone": [], "whole": True}
    assert listing.after(seen) is None
    assert not listing.put([("a", "1")], gone=["c"])
    assert listing.after(seen) is None
    assert listing.put([("a", "3"), ("b", "2")])
    assert told(listing, seen)[0] == {"items": [3], "gone": []}
    listing.put([("c", "4")], gone=["b"])
    assert told(listing, seen)[0] == {"items": [3, 4], "gone": ["b"]}, "two changes are one"
    listing.put([("b", "5")])
    assert told(listing, seen)[0] == {"items": [3, 4, 5], "gone": []}
    assert listing.names == {"a", "b", "c"}


def test_an_empty_list_is_told_too() -> None:
    listing = ListChannel(count(1).__next__)
    assert listing.put([])
    assert told(listing, None)[0] == {"items": [], "gone": [], "whole": True}
    assert not listing.put([])


def test_who_is_too_far_behind_is_told_all_of_a_list() -> None:
    listing = ListChannel(count(1).__next__)
    listing.put([(f"d{number}", str(number)) for number in range(GONE_MAX + 2)])
    _, seen = told(listing, None)
    for number in range(GONE_MAX + 1):
        listing.put([], gone=[f"d{number}"])
    assert listing.floor > seen
    assert told(listing, seen)[0] == {"items": [GONE_MAX + 1], "gone": [], "whole": True}


def test_a_list_is_put_together_once_for_all_who_are_equally_far() -> None:
    listing = ListChannel(count(1).__next__)
    listing.put([("a", "1")])
    first, again = listing.after(None), listing.after(None)
    assert first is again


def test_what_comes_is_told_in_order_and_what_was_missed_is_counted() -> None:
    log = tail()
    assert log.after(None) is None
    assert log.add([])
    value, seen = told(log, None)
    assert value == {"lines": [], "dropped": 0}
    log.add(["1", "2"])
    log.add(["3", "4"])
    value, further = told(log, seen)
    assert value == {"lines": [1, 2, 3], "dropped": 0}
    assert told(log, further)[0] == {"lines": [4], "dropped": 0}
    log.add(["5", "6", "7"])
    value, further = told(log, seen)
    assert value == {"lines": [3, 4, 5], "dropped": 2}
    value, further = told(log, further)
    assert value == {"lines": [6, 7], "dropped": 0}
    assert log.after(further) is None
    assert told(log, None)[0] == {"lines": [5, 6, 7], "dropped": 0}, "who is new gets the last"


def test_long_lines_take_the_room_of_many() -> None:
    log = tail(items_max=1000)
    log.add([])
    seen = told(log, None)[1]
    log.add([json.dumps("x" * 60), json.dumps("y" * 60)])
    assert told(log, seen)[0] == {"lines": ["y" * 60], "dropped": 1}


def test_a_channel_made_anew_is_not_taken_for_the_one_before() -> None:
    numbers = count(1).__next__
    before = TailChannel(numbers, lines, items_max=10, chars_max=100, at_once=10)
    before.add(["1", "2", "3"])
    _, seen = told(before, None)
    after = TailChannel(numbers, lines, items_max=10, chars_max=100, at_once=10)
    assert after.floor > seen
    listing = ListChannel(numbers)
    listing.put([("a", "1")])
    _, seen = told(listing, None)
    assert ListChannel(numbers).floor > seen
    assert DocumentChannel(numbers).floor > seen


NAMES = st.sampled_from("abcd")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.integers(0, 3)),
        st.tuples(st.just("gone"), NAMES, st.just(0)),
        st.tuples(st.just("read"), st.just(""), st.just(0)),
    ),
    max_size=40,
)


@given(CHANGES)
def test_whoever_reads_whenever_ends_with_what_there_is(
    changes: list[tuple[str, str, int]],
) -> None:
    listing = ListChannel(count(1).__next__)
    there: dict[str, int] = {}
    mine: dict[str, int] = {}
    seen: int | None = None
    for what, name, value in [*changes, ("read", "", 0)]:
        if what == "put":
            there[name] = value
            listing.put([(name, json.dumps({"name": name, "value": value}))])
        elif what == "gone":
            there.pop(name, None)
            listing.put([], gone=[name])
        elif (part := listing.after(seen)) is not None:
            seen, data = part.number, json.loads(part.data)
            mine = {} if data.get("whole") else mine
            mine |= {item["name"]: item["value"] for item in data["items"]}
            for gone in data["gone"]:
                mine.pop(gone, None)  # it may have come and gone meanwhile
    assert mine == there


@given(st.lists(st.one_of(st.integers(1, 9), st.just("read")), max_size=60))
def test_of_what_comes_nothing_is_told_twice_or_lost_unsaid(steps: list[int | str]) -> None:
    log, all_lines, got, dropped = tail(), count(), [], 0
    log.add([])
    seen = told(log, None)[1]
    for step in [*steps, *["read"] * 10]:
        if isinstance(step, int):
            log.add([str(next(all_lines)) for _ in range(step)])
        elif (part := log.after(seen)) is not None:
            seen, data = part.number, json.loads(part.data)
            dropped += data["dropped"]
            got += data["lines"]
    written = next(all_lines)
    assert got == sorted(set(got))
    assert len(got) + dropped == written
    assert got[-5:] == list(range(written))[-5:]
