"""Watches what replicas of a deployment print, of those that there are and of those to come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress

from hotplate.deploy.errors import DeployError
from hotplate.deploy.phases import unix_now
from hotplate.platform.api.hotplate.streaming.hub import Audience, news
from hotplate.platform.api.hotplate.streaming.tables import TOGETHER_S, one_line
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.errors import NotFound
from hotplate.platform.live.channel import TailChannel
from hotplate.platform.live.line_buffer import LineBuffer
from hotplate.platform.live.topics import Topic
from hotplate.platform.store.deployments import Deployments

FIRST = 200
"""Lines of each replica that a reader is told of who has none."""
LINES_MAX = 20_000
CHARS_MAX = 4 << 20
AT_ONCE = 1000
FOLLOWED_MAX = 64
"""Replicas whose logs are read at a time: each is looked at again and again."""
AGAIN_S = 1.0


class FollowedLog:
    """Of a topic `logs:NAME` or `logs:NAME/REPLICA`."""

    def __init__(
        self,
        topic: Topic,
        deployments: Deployments,
        controller: ControllerApi,
        audience: Audience,
        next_number: Callable[[], int],
        wall: Callable[[], float] = unix_now,
    ) -> None:
        self._wall = wall
        self._topic = topic
        self._deployments = deployments
        self._controller = controller
        self._organization_id = audience.organization.id
        self._deployment_id: int | None = None
        self._reading: dict[str, asyncio.Task[None]] = {}
        """By replica; those that have ended too."""
        self.channel = TailChannel(
            next_number, _event, items_max=LINES_MAX, chars_max=CHARS_MAX, at_once=AT_ONCE
        )

    async def run(self, changed: Callable[[], None]) -> None:
        came = asyncio.Event()
        watch = self._controller.changes.watch(came.set)
        lines: int | None = FIRST
        try:
            while True:
                came.clear()
                if self._deployment_id is None or self._deployment_id in watch.take():
                    await self._find()
                self._follow(lines, changed)
                lines = None  # of what comes later, all is new
                if self.channel.add(()):
                    changed()
                await asyncio.sleep(TOGETHER_S)
                await news(came, AGAIN_S)
        finally:
            self._controller.changes.end(watch)
            await self._stop()

    async def _find(self) -> None:
        """Which deployment has the name now; what others have printed is not read on."""
        organization, name = self._organization_id, self._topic.name
        found: int | None = None
        with suppress(NotFound):
            found = (await self._deployments.run(self._deployments.find, organization, name)).id
        if found != self._deployment_id:
            await self._stop()
            self._deployment_id = found

    def _follow(self, lines: int | None, changed: Callable[[], None]) -> None:
        if self._deployment_id is None:
            return
        replicas = [self._topic.replica]
        if not self._topic.replica:
            there = self._controller.live(self._deployment_id)["replicas"]
            replicas = [each["id"] for each in there]
        for replica in replicas:
            room = sum(not task.done() for task in self._reading.values()) < FOLLOWED_MAX
            if replica not in self._reading and room:
                reading = self._read(self._deployment_id, replica, lines, changed)
                self._reading[replica] = asyncio.create_task(reading, name=f"log of {replica}")

    async def _read(
        self, deployment_id: int, replica: str, lines: int | None, changed: Callable[[], None]
    ) -> None:
        buffer, is_old = LineBuffer(), lines is not None
        try:
            async with aclosing(
                self._controller.follow_log(deployment_id, replica, lines)
            ) as pieces:
                async for piece in pieces:
                    is_old = is_old and piece != ""
                    self._add(replica, buffer.add(piece), is_old, changed)
            self._add(replica, buffer.end(), is_old, changed)
        except DeployError:  # it has no log yet, or no longer
            self._reading.pop(replica, None)

    def _add(
        self, replica: str, lines: Sequence[str], is_old: bool, changed: Callable[[], None]
    ) -> None:
        """A log keeps no times: of those that were there before nobody knows when they came."""
        at = None if is_old else round(self._wall(), 1)
        told = (one_line({"replica": replica, "text": text, "at": at}) for text in lines)
        if lines and self.channel.add(told):
            changed()

    async def _stop(self) -> None:
        reading, self._reading = list(self._reading.values()), {}
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


def _event(items: Sequence[str], missed: int) -> str:
    return f'{{"lines":[{",".join(items)}],"dropped":{missed}}}'
