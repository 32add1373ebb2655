"""What there is to tell of one topic, and what a reader is told who is so far; pure.

Each change has a number, larger than all before it, of whichever channel: so a channel that is
made anew cannot be taken for the one before. Readers are told of the difference between what they
have and what there is now, however long they took: nothing piles up for one who is slow, and what
many readers are told alike is put together once.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

GONE_MAX = 1000
"""Names that are remembered as gone."""
MEMOS_MAX = 8
"""Readers are nearly all equally far."""
TAIL_BITS = 40
"""Room for the items of a tail between its number and that of the next channel."""


@dataclass(frozen=True)
class ChannelNews:
    """What one reader is told next."""

    data: str
    """JSON."""
    number: int
    """How far the reader is then."""


class Channel(Protocol):
    floor: int
    """Who is less far cannot be told what they have missed."""

    def after(self, seen: int | None) -> ChannelNews | None:
        """What is new for a reader who is so far, None = who has nothing; None = nothing is."""


class DocumentChannel:
    """One JSON value, whole."""

    def __init__(self, next_number: Callable[[], int]) -> None:
        self._next_number = next_number
        self.floor = next_number()
        self._part: ChannelNews | None = None

    def put(self, data: str) -> bool:
        """Whether this is news."""
        if self._part is not None and self._part.data == data:
            return False
        self._part = ChannelNews(data, self._next_number())
        return True

    def after(self, seen: int | None) -> ChannelNews | None:
        if self._part is None or (seen is not None and seen >= self._part.number):
            return None
        return self._part


class ListChannel:
    """Named items, of which readers are told those that have changed."""

    def __init__(self, next_number: Callable[[], int]) -> None:
        self._next_number = next_number
        self.floor = next_number()
        self._number = 0
        """Of the last change; 0 = nothing was ever put."""
        self._items: dict[str, tuple[int, str]] = {}
        self._gone: dict[str, int] = {}
        self._order: Sequence[str] = ()
        self._memo: dict[int | None, ChannelNews] = {}

    def put(self, items: Iterable[tuple[str, str]], gone: Iterable[str] = ()) -> bool:
        """Add or replace these, by name, and take those away; whether it is news."""
        number = self._next_number()
        news = self._number == 0
        for name, data in items:
            if name not in self._items or self._items[name][1] != data:
                self._items[name] = (number, data)
                self._gone.pop(name, None)
                news = True
        for name in gone:
            if self._items.pop(name, None) is not None:
                self._gone[name] = number
                news = True
        while len(self._gone) > GONE_MAX:
            oldest = next(iter(self._gone))
            self.floor = self._gone.pop(oldest)
        if news:
            self._number = number
            self._memo.clear()
        return news

    def arrange(self, order: Sequence[str]) -> None:
        """In which order a reader who has nothing is told of them; others come after."""
        self._order = order

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._items)

    def after(self, seen: int | None) -> ChannelNews | None:
        if self._number == 0 or (seen is not None and seen >= self._number):
            return None
        if seen not in self._memo:
            if len(self._memo) >= MEMOS_MAX:
                self._memo.clear()
            if seen is None or seen < self.floor:
                self._memo[seen] = self._whole()
            else:
                self._memo[seen] = self._changed(seen)
        return self._memo[seen]

    def _whole(self) -> ChannelNews:
        names = dict.fromkeys(name for name in self._order if name in self._items)
        names |= dict.fromkeys(self._items)
        items = ",".join(self._items[name][1] for name in names)
        return ChannelNews(f'{{"items":[{items}],"gone":[],"whole":true}}', self._number)

    def _changed(self, seen: int) -> ChannelNews:
        items = ",".join(data for number, data in self._items.values() if number > seen)
        gone = [name for name, number in self._gone.items() if number > seen]
        return ChannelNews(f'{{"items":[{items}],"gone":{json.dumps(gone)}}}', self._number)


class TailChannel:
    """The last of what comes one after another, numbered without a gap."""

    def __init__(
        self,
        next_number: Callable[[], int],
        told: Callable[[Sequence[str], int], str],
        *,
        items_max: int,
        chars_max: int,
        at_once: int,
    ) -> None:
        """`told` makes the JSON of items, the oldest first, and of how many were missed. Up to
        `items_max` and `chars_max` are kept, and an event tells of up to `at_once`."""
        self._told = told
        self._items_max, self._chars_max, self._at_once = items_max, chars_max, at_once
        self.floor = self._number = next_number() << TAIL_BITS
        self._chars = 0
        self._items: deque[str] = deque()
        self._ready = False
        self._memo: dict[int | None, ChannelNews] = {}

    def add(self, items: Iterable[str]) -> bool:
        """The oldest first; whether it is news. Before the first call readers are told nothing."""
        news, self._ready = not self._ready, True
        for item in items:
            self._number += 1
            self._items.append(item)
            self._chars += len(item)
            news = True
        while len(self._items) > self._items_max or self._chars > self._chars_max:
            self._chars -= len(self._items.popleft())
            self.floor += 1
        if news:
            self._memo.clear()
        return news

    def after(self, seen: int | None) -> ChannelNews | None:
        """Who is behind what is kept learns how many were missed."""
        if not self._ready or (seen is not None and seen >= self._number):
            return None
        if seen not in self._memo:
            if len(self._memo) >= MEMOS_MAX:
                self._memo.clear()
            self._memo[seen] = self._last() if seen is None else self._next(seen)
        return self._memo[seen]

    def _last(self) -> ChannelNews:
        found = list(islice(self._items, max(0, len(self._items) - self._at_once), None))
        return ChannelNews(self._told(found, 0), self._number)

    def _next(self, seen: int) -> ChannelNews:
        missed = max(0, self.floor - seen)
        first = max(seen, self.floor) - self.floor
        found = list(islice(self._items, first, first + self._at_once))
        return ChannelNews(self._told(found, missed), self.floor + first + len(found))
