"""How readers go on after they were cut off."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, islice

import pytest

from hotplate.platform.live.channel import Channel, DocumentChannel, ListChannel
from hotplate.platform.live.cursor import Cursor, StreamEvent


class World:
    """Three topics of one process."""

    def __init__(self, numbers: Callable[[], int] | None = None) -> None:
        numbers = numbers or count(1).__next__
        self.list, self.one, self.other = (
            ListChannel(numbers),
            DocumentChannel(numbers),
            DocumentChannel(numbers),
        )
        self.channels: dict[str, Channel] = {
            "deployments": self.list,
            "deployment:a": self.one,
            "platform": self.other,
        }
        self.list.put([("a", "1"), ("b", "2")])
        self.one.put('{"a": 1}')

    def cursor(self, last_id: str = "", boot: str = "b") -> Cursor:
        return Cursor(boot, self.channels, last_id)


def names(events: list[StreamEvent]) -> list[str]:
    return [event.name for event in events]


def test_a_new_reader_is_told_all_that_is_known() -> None:
    world = World()
    cursor = world.cursor()
    first = list(cursor.next())
    assert names(first) == ["deployments", "deployment:a"]
    assert json.loads(first[0].data)["whole"]
    assert list(cursor.next()) == []
    world.other.put("5")
    (event,) = cursor.next()
    assert event.text() == f"id: {event.id}\nevent: platform\ndata: 5\n\n"


def test_from_each_event_on_a_reader_goes_on_without_a_hole() -> None:
    world = World()
    world.other.put("5")
    cursor = world.cursor()
    told = list(cursor.next())
    for number, event in enumerate(told):
        after = list(world.cursor(event.id).next())
        assert names(after) == names(told[number + 1 :])
    world.list.put([("b", "3")], gone=["a"])
    (event,) = world.cursor(told[-1].id).next()
    assert json.loads(event.data) == {"items": [3], "gone": ["a"]}


def test_after_another_start_all_topics_begin_anew() -> None:
    (event, *_) = World().cursor().next()
    reset, *others = World().cursor(event.id, boot="another").next()
    assert reset.name == "reset"
    assert json.loads(reset.data) == {"topics": ["deployments", "deployment:a", "platform"]}
    assert names(others) == ["deployments", "deployment:a"]
    assert json.loads(others[0].data)["whole"]
    again = list(World().cursor(reset.id, boot="another").next())
    assert names(again) == ["deployments", "deployment:a"], "a reset is told once"


def test_a_topic_of_which_too_much_was_missed_begins_anew_and_no_other() -> None:
    numbers = count(1).__next__
    world = World(numbers)
    (*_, last) = world.cursor().next()
    world.channels["deployments"] = later = ListChannel(numbers)
    later.put([("a", "1")])
    reset, event = world.cursor(last.id).next()
    assert json.loads(reset.data) == {"topics": ["deployments"]}
    assert event.name == "deployments"


@pytest.mark.parametrize(
    "last_id", ["x", "b", "b.1/2.3", "/", "b.{}/1.2", "b.{}/1.2.3.4", "b.{}/1.x.3", "b.{}/1.²."]
)
def test_an_id_that_is_none_of_ours_begins_anew(last_id: str) -> None:
    world = World()
    (event, *_) = world.cursor().next()
    head = event.id.partition("/")[0].partition(".")[2]
    reset, *_ = world.cursor(last_id.replace("{}", head)).next()
    assert reset.name == "reset"


def test_other_topics_begin_anew() -> None:
    world = World()
    (event, *_) = world.cursor().next()
    channels: dict[str, Channel] = {"a": world.list, "b": world.one, "c": world.other}
    reset, *_ = Cursor("b", channels, event.id).next()
    assert reset.name == "reset"


def test_a_topic_with_much_to_tell_holds_up_no_other() -> None:
    class Endless:
        floor = 0

        def after(self, seen: int | None) -> object:
            from hotplate.platform.live.channel import ChannelNews

            return ChannelNews("1", (seen or 0) + 1)

    world = World()
    channels: dict[str, Channel] = {"logs:a": Endless(), **world.channels}  # type: ignore[dict-item]
    told = list(islice(Cursor("b", channels).next(), 4))
    assert names(told) == ["logs:a", "deployments", "deployment:a", "logs:a"]
