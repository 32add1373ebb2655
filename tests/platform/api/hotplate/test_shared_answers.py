"""One answer for many who ask at the same time."""

from __future__ import annotations

import asyncio

import pytest

from hotplate.platform.api.hotplate.shared_answers import SharedAnswers
from tests.support.patience import until


class Maker:
    """Makes `1`, `2` and on."""

    def __init__(self) -> None:
        self.made = 0
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def make(self) -> bytes:
        self.made += 1
        number = self.made
        await self.may_end.wait()
        if number == 13:
            raise ValueError(number)
        return str(number).encode()


async def test_who_asks_while_it_is_made_or_soon_after_gets_the_same() -> None:
    answers, maker = SharedAnswers(fresh_s=60), Maker()
    maker.may_end.clear()
    asked = [asyncio.create_task(answers.get("a", maker.make)) for _ in range(3)]
    other = asyncio.create_task(answers.get("b", maker.make))
    await until(lambda: maker.made == 2)
    asked[0].cancel()  # the others get theirs
    maker.may_end.set()
    assert await asyncio.gather(*asked[1:], other) == [b"1", b"1", b"2"]
    assert await answers.get("a", maker.make) == b"1"


async def test_it_is_made_anew_after_a_moment() -> None:
    answers, maker = SharedAnswers(fresh_s=0.01), Maker()
    assert await answers.get("a", maker.make) == b"1"

    async def anew() -> bool:
        return await answers.get("a", maker.make) != b"1"

    await until(anew)


async def test_what_fails_is_told_to_who_waits_and_tried_again() -> None:
    answers, maker = SharedAnswers(fresh_s=60), Maker()
    maker.made = 12
    with pytest.raises(ValueError, match="13"):
        await answers.get("a", maker.make)
    assert await answers.get("a", maker.make) == b"14"
