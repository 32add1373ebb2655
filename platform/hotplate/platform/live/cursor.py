"""How far one reader is with each of its topics, and the events that take it further; pure.

The `id` of an event says all of that, so a reader that was cut off goes on from the last event
that it has got whole, at whichever moment the connection ended: with what has changed since, or
with `reset` where that cannot be told any more, because the control plane is another one or
because it was too long ago.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from hotplate.platform.live.channel import Channel

NOTHING = "-"
ID_CHARS = 1000


@dataclass(frozen=True)
class StreamEvent:
    id: str
    name: str
    data: str
    """JSON, of one line."""

    def text(self) -> str:
        """As it stands in the stream."""
        return f"id: {self.id}\nevent: {self.name}\ndata: {self.data}\n\n"


class Cursor:
    def __init__(self, boot: str, channels: Mapping[str, Channel], last_id: str = "") -> None:
        """`boot` is another one after each start; `channels` are those of the reader's topics, by
        name; `last_id` is of the last event that it has, empty = it has none."""
        self._channels = channels
        self._head = f"{boot}.{crc32(','.join(channels).encode()):x}"
        self._seen: dict[str, int | None] = dict.fromkeys(channels)
        self._anew: Sequence[str] = ()
        """Topics that begin anew, of which the reader is to be told."""
        if last_id:
            self._go_on(last_id)

    def next(self) -> Iterator[StreamEvent]:
        """What there is to tell now. The reader is so far when it has asked for the one after."""
        if self._anew:
            topics, self._anew = self._anew, ()
            yield StreamEvent(self._id(), "reset", json.dumps({"topics": topics}))
        is_news = True
        while is_news:  # in turns, so that a log of many lines holds up nothing else
            is_news = False
            for name, channel in self._channels.items():
                if (part := channel.after(self._seen[name])) is not None:
                    self._seen[name] = part.number
                    is_news = True
                    yield StreamEvent(self._id(), name, part.data)

    def _go_on(self, last_id: str) -> None:
        boot, _, numbers = last_id[:ID_CHARS].rpartition("/")
        said = numbers.split(".")
        if boot != self._head or len(said) != len(self._channels) or not all(map(_is_number, said)):
            self._anew = list(self._channels)
            return
        for (name, channel), number in zip(self._channels.items(), said, strict=True):
            if number != NOTHING and int(number) >= channel.floor:
                self._seen[name] = int(number)
        self._anew = [
            name
            for name, number in zip(self._channels, said, strict=True)
            if number != NOTHING and self._seen[name] is None
        ]

    def _id(self) -> str:
        numbers = (NOTHING if seen is None else str(seen) for seen in self._seen.values())
        return f"{self._head}/{'.'.join(numbers)}"


def _is_number(text: str) -> bool:
    return text == NOTHING or (text.isascii() and text.isdecimal())
