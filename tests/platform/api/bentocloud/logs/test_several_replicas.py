"""Several logs at a time: nothing is lost, nothing piles up, and what ends is closed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator

import pytest

from hotplate.deploy.errors import UnknownReplica
from hotplate.platform.api.bentocloud.logs.several_replicas import AHEAD, FollowedLogs
from tests.support.patience import until


class Logs:
    """Logs of replicas, which print `many` pieces each and go on."""

    def __init__(self, many: int = 3) -> None:
        self.many = many
        self.unknown: set[str] = set()
        self.opened: list[tuple[str, bool]] = []
        self.closed: list[str] = []
        self.read: dict[str, int] = defaultdict(int)

    async def follow(self, replica: str, *, first: bool) -> AsyncGenerator[str, None]:
        if replica in self.unknown:
            raise UnknownReplica(replica)
        self.opened.append((replica, first))
        try:
            for number in range(self.many):
                self.read[replica] += 1
                yield f"{replica}{number} "
            await asyncio.Event().wait()
        finally:
            self.closed.append(replica)


@pytest.fixture
def logs() -> Logs:
    return Logs()


async def come(followed: FollowedLogs, wait_s: float = 0.05) -> list[str]:
    return [piece async for piece in followed.come_within(wait_s)]


async def test_each_is_followed_once_and_comes_in_its_order(logs: Logs) -> None:
    followed = FollowedLogs(logs.follow)
    followed.follow(["a"])
    assert await come(followed) == ["a0 ", "a1 ", "a2 "]
    followed.follow(["a", "b"])
    assert await come(followed) == ["b0 ", "b1 ", "b2 "]
    followed.follow([])
    assert await come(followed) == []
    assert logs.opened == [("a", True), ("b", False)]
    await followed.close()
    assert sorted(logs.closed) == ["a", "b"]


async def test_one_that_has_no_log_yet_is_tried_again(logs: Logs) -> None:
    logs.unknown.add("a")
    followed = FollowedLogs(logs.follow)
    followed.follow(["a"])
    assert await come(followed) == []
    logs.unknown.clear()
    followed.follow(["a"])
    assert await come(followed) == ["a0 ", "a1 ", "a2 "]
    assert logs.opened == [("a", True)]
    await followed.close()


async def test_of_a_log_that_nobody_takes_only_so_much_is_read_ahead() -> None:
    logs = Logs(many=10 * AHEAD)
    followed = FollowedLogs(logs.follow)
    followed.follow(["a"])
    await until(lambda: logs.read["a"] == AHEAD + 1)
    assert await come(followed, 0) == []
    assert logs.read["a"] == AHEAD + 1
    taken = [piece async for piece in followed.come_within(0.3)]
    assert taken == [f"a{number} " for number in range(10 * AHEAD)]
    await followed.close()
