"""What is written to one reader, and how much of it at once."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import cast

from aiohttp import web

from hotplate.platform.api.hotplate.streaming.reader import Reader
from hotplate.platform.live.channel import DocumentChannel
from hotplate.platform.live.cursor import Cursor
from tests.support.patience import until


class Written:
    """A response in memory."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def write(self, data: bytes) -> None:
        self.texts.append(data.decode())


async def none() -> None:
    return None


async def test_what_topics_say_within_a_moment_is_written_at_once() -> None:
    numbers, wake, written = count(1), asyncio.Event(), Written()
    a, b = (DocumentChannel(numbers.__next__) for _ in range(2))
    reader = Reader(cast("web.StreamResponse", written), Cursor("boot", {"a": a, "b": b}), wake)
    a.put('"one"')
    b.put('"two"')
    telling = asyncio.create_task(reader.tell(none, lambda: False))
    await until(lambda: len(written.texts) == 1)
    assert all(word in written.texts[0] for word in ("one", "two"))
    a.put('"three"')
    wake.set()
    for _ in range(9):  # it has its turns, and waits for more
        await asyncio.sleep(0)
    b.put('"four"')
    wake.set()
    await until(lambda: len(written.texts) == 2)
    assert all(word in written.texts[1] for word in ("three", "four"))
    telling.cancel()
    await asyncio.wait([telling])
