"""Watches what happens, and how the platform is: as our own API shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from hotplate.platform.api.hotplate.overview import OverviewRoutes
from hotplate.platform.api.hotplate.streaming.hub import Audience, news
from hotplate.platform.api.hotplate.streaming.tables import TOGETHER_S, one_line
from hotplate.platform.live.change_feed import ChangeFeed
from hotplate.platform.live.channel import DocumentChannel, TailChannel

EVENTS_MAX = 1000
CHARS_MAX = 1 << 20
FIRST = 100
"""Events that a reader is told of who has none, and looked at each time."""
AGAIN_S = 0.7
"""How often it is looked for those that no change of a deployment comes with."""
AMOUNTS_S = 2.0
"""How often it is told of a platform of which only amounts of bytes have changed."""


class HappenedEvents:
    """Of the topic `events`."""

    def __init__(
        self,
        overview: OverviewRoutes,
        changes: ChangeFeed,
        audience: Audience,
        next_number: Callable[[], int],
    ) -> None:
        self._overview = overview
        self._changes = changes
        self._audience = audience
        self._known: Sequence[str] = ()
        self._since: datetime | None = None
        """No later one that comes from before is news: something newer than it was taken away."""
        self._mark: object = None
        self.channel = TailChannel(
            next_number, _events, items_max=EVENTS_MAX, chars_max=CHARS_MAX, at_once=FIRST
        )

    async def run(self, changed: Callable[[], None]) -> None:
        came = asyncio.Event()
        watch = self._changes.watch(came.set)
        try:
            came.set()
            while True:
                if came.is_set() or self._platform_has_changed():
                    came.clear()
                    watch.take()
                    if self.channel.add(await self._new()):
                        changed()
                await asyncio.sleep(TOGETHER_S)
                await news(came, AGAIN_S)
        finally:
            self._changes.end(watch)

    def _platform_has_changed(self) -> bool:
        before, self._mark = self._mark, self._overview.mark()
        return self._audience.operator and self._mark != before

    async def _new(self) -> list[str]:
        """The oldest first."""
        organization, operator = self._audience.organization, self._audience.operator
        found = await self._overview.happened(organization.id, FIRST, operator=operator)
        texts = {one_line(event): datetime.fromisoformat(event["at"]) for event in reversed(found)}
        known, since = set(self._known), self._since
        self._known, self._since = list(texts), min(texts.values(), default=since)
        return [
            text
            for text, at in texts.items()
            if text not in known and (since is None or at >= since)
        ]


class PlatformOverview:
    """Of the topic `platform`: nothing says when it changes, so it is looked at."""

    def __init__(self, overview: OverviewRoutes, next_number: Callable[[], int]) -> None:
        self._overview = overview
        self.channel = DocumentChannel(next_number)

    async def run(self, changed: Callable[[], None]) -> None:
        now = asyncio.get_running_loop().time
        shape, told_at = None, 0.0
        while True:
            described = self._overview.described()
            before, shape = shape, _shape(described)
            # Disks and memory change all the time.
            if shape != before or now() >= told_at + AMOUNTS_S:
                told_at = now()
                if self.channel.put(one_line(described)):
                    changed()
            await asyncio.sleep(AGAIN_S)


def _shape(value: Any) -> Any:
    """What is described, without amounts of bytes."""
    if isinstance(value, dict):
        return {key: _shape(each) for key, each in value.items() if not key.endswith("_bytes")}
    return [_shape(each) for each in value] if isinstance(value, list) else value


def _events(items: Sequence[str], missed: int) -> str:
    """Newest first, as the API answers them."""
    return f'{{"items":[{",".join(reversed(items))}]}}'
