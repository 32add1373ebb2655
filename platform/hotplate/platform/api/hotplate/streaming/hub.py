"""Who follows what: a topic is watched once for all who follow it, and by nobody while none do.

`tables`, `logs` and `overviews` watch topics of a kind, and fill their channels; `live/` says what
each reader is told of these.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from secrets import token_hex
from typing import Protocol

from hotplate.platform.errors import PlatformError
from hotplate.platform.live.channel import Channel
from hotplate.platform.live.topics import DEPLOYMENT, DEPLOYMENTS, EVENTS, Topic
from hotplate.platform.store.records import Organization

LINGER_S = 20.0
"""How long a topic is watched after its last reader has left, who may only have been cut off."""
RETRY_S = 2.0

log = logging.getLogger("hotplate.api")


@dataclass(frozen=True)
class Audience:
    """What readers have in common who are told the same."""

    organization: Organization
    origin: str
    """Where they reach deployments, but for the port or the name."""
    operator: bool

    def key(self, topic: Topic) -> tuple[Topic, int, str, bool]:
        """By what they differ for a topic."""
        origin = self.origin if topic.kind in (DEPLOYMENTS, DEPLOYMENT) else ""
        return topic, self.organization.id, origin, self.operator and topic.kind == EVENTS


class TopicSource(Protocol):
    """Watches one topic."""

    @property
    def channel(self) -> Channel: ...

    async def run(self, changed: Callable[[], None]) -> None:
        """Fill the channel until cancelled; `changed` is called when there is news in it."""


@dataclass
class _Watched:
    source: TopicSource
    task: asyncio.Task[None]
    readers: set[asyncio.Event] = field(default_factory=set)
    ending: asyncio.TimerHandle | None = None


class LiveHub:
    """Starts sources for who follows their topics."""

    def __init__(
        self,
        source: Callable[[Topic, Audience, Callable[[], int]], TopicSource],
        linger_s: float,
    ) -> None:
        """`source` makes one, given also what numbers its channel's changes."""
        self._source = source
        self._linger_s = linger_s
        self._next_number = count(1).__next__
        self._watched: dict[tuple[Topic, int, str, bool], _Watched] = {}
        self._readers: set[asyncio.Event] = set()
        self.boot = token_hex(6)
        """Says that numbers are of this process."""
        self.closing = False

    @property
    def watched(self) -> int:
        """How many topics are."""
        return len(self._watched)

    @contextmanager
    def followed(
        self, topics: Sequence[Topic], audience: Audience, wake: asyncio.Event
    ) -> Iterator[Mapping[str, Channel]]:
        """The channels of these topics, by name. `wake` is set when there is news in one, or the
        hub closes."""
        keys = {str(topic): audience.key(topic) for topic in topics}
        watched = {name: self._watch(key, audience) for name, key in keys.items()}
        for each in watched.values():
            each.readers.add(wake)
        self._readers.add(wake)
        try:
            yield {name: each.source.channel for name, each in watched.items()}
        finally:
            self._readers.discard(wake)
            for key in keys.values():
                self._leave(key, wake)

    async def close(self) -> None:
        """Ends what is watched; readers end then."""
        self.closing = True
        for wake in self._readers:
            wake.set()
        ended = [self._end(key) for key in list(self._watched)]
        await asyncio.gather(*ended, return_exceptions=True)

    def _watch(self, key: tuple[Topic, int, str, bool], audience: Audience) -> _Watched:
        watched = self._watched.get(key)
        if watched is None:
            source = self._source(key[0], audience, self._next_number)
            readers: set[asyncio.Event] = set()
            task = asyncio.create_task(_run(source, readers), name=f"live {key[0]}")
            watched = self._watched[key] = _Watched(source, task, readers)
        if watched.ending is not None:
            watched.ending.cancel()
            watched.ending = None
        return watched

    def _leave(self, key: tuple[Topic, int, str, bool], wake: asyncio.Event) -> None:
        watched = self._watched.get(key)
        if watched is None:
            return
        watched.readers.discard(wake)
        if not watched.readers and watched.ending is None:
            loop = asyncio.get_running_loop()
            watched.ending = loop.call_later(self._linger_s, self._end, key)

    def _end(self, key: tuple[Topic, int, str, bool]) -> asyncio.Task[None]:
        watched = self._watched.pop(key)
        if watched.ending is not None:
            watched.ending.cancel()
        watched.task.cancel()
        return watched.task


async def _run(source: TopicSource, readers: set[asyncio.Event]) -> None:
    def changed() -> None:
        for wake in readers:
            wake.set()

    while True:
        try:
            await source.run(changed)
        except PlatformError as error:
            log.warning("what is followed live is looked at again in a moment: %s", error)
        except Exception:  # a bug: readers keep what they have, and the log gets the traceback
            log.exception("what is followed live cannot be told")
        await asyncio.sleep(RETRY_S)


async def news(event: asyncio.Event, within_s: float) -> bool:
    """Whether something came in so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):  # `wait_for` makes a task of each wait
            return await event.wait()
    return False
