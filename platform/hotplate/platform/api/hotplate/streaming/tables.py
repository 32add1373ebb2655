"""Watches the deployments of an organization, or one of them: as our own API shows them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from hotplate.platform.api.hotplate.deployments import DeploymentStatusRoutes
from hotplate.platform.api.hotplate.streaming.hub import Audience, news
from hotplate.platform.errors import NotFound
from hotplate.platform.live.change_feed import ChangeFeed
from hotplate.platform.live.channel import DocumentChannel, ListChannel
from hotplate.platform.store.deployments import Deployments
from hotplate.platform.store.records import Deployment

TOGETHER_S = 0.3
"""Changes within this are told together."""
MOVING_S = 1.0
"""How often one is looked at whose rates are those of a moment ago."""
AGAIN_S = 60.0
"""How often all are looked at, whether or not one has changed."""
AT_ONCE = 20
DETAIL_S = 5.0
"""The same of a single one, with its tasks and what it has learnt."""


class DeploymentTable:
    """Of the topic `deployments`."""

    def __init__(
        self,
        deployments: Deployments,
        status: DeploymentStatusRoutes,
        changes: ChangeFeed,
        audience: Audience,
        next_number: Callable[[], int],
    ) -> None:
        self._deployments = deployments
        self._status = status
        self._changes = changes
        self._audience = audience
        self._names: dict[int, str] = {}
        self._moving: set[int] = set()
        self.channel = ListChannel(next_number)

    async def run(self, changed: Callable[[], None]) -> None:
        came = asyncio.Event()
        watch = self._changes.watch(came.set)
        now = asyncio.get_running_loop().time
        try:
            await self._read(None)
            read_at = moved_at = now()
            changed()
            while True:
                await news(came, MOVING_S if self._moving else AGAIN_S)
                await asyncio.sleep(TOGETHER_S)
                came.clear()
                ids = watch.take()
                if now() >= moved_at + MOVING_S:
                    ids, moved_at = ids | self._moving, now()
                if now() >= read_at + AGAIN_S:
                    ids, read_at = ids | self._names.keys(), now()
                if ids and await self._read(ids):
                    changed()
        finally:
            self._changes.end(watch)

    async def _read(self, ids: Collection[int] | None) -> bool:
        """Look at these, None = at all of them; whether that is news."""
        organization = self._audience.organization.id
        found = await self._deployments.run(self._deployments.some, organization, ids)
        there = {each.id: each.name for each in found}
        looked = self._names.keys() if ids is None else ids & self._names.keys()
        left = looked - there.keys()
        gone = {self._names.pop(each) for each in left}
        self._moving -= left
        self._names |= there
        listed = []
        for each in found:
            listed.append((each.name, self._text(each)))
            if len(listed) % AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turns too
        is_news = self.channel.put(listed, gone - set(self._names.values()))
        if is_news:
            self.channel.arrange([self._names[each] for each in sorted(self._names, reverse=True)])
        return is_news

    def _text(self, deployment: Deployment) -> str:
        summary = self._status.summary(deployment, self._audience.origin)
        if any((summary.get("rates") or {}).values()):
            self._moving.add(deployment.id)
        else:
            self._moving.discard(deployment.id)
        return one_line(summary)


class DeploymentDetail:
    """Of a topic `deployment:NAME`."""

    def __init__(
        self,
        name: str,
        deployments: Deployments,
        status: DeploymentStatusRoutes,
        changes: ChangeFeed,
        audience: Audience,
        next_number: Callable[[], int],
    ) -> None:
        self._name = name
        self._deployments = deployments
        self._status = status
        self._changes = changes
        self._audience = audience
        self._id: int | None = None
        self._is_moving = False
        self.channel = DocumentChannel(next_number)

    async def run(self, changed: Callable[[], None]) -> None:
        came = asyncio.Event()
        watch = self._changes.watch(came.set)
        now = asyncio.get_running_loop().time
        try:
            while True:
                if self.channel.put(await self._read()):
                    changed()
                due = now() + (MOVING_S if self._is_moving else DETAIL_S)
                while await news(came, due - now()):
                    await asyncio.sleep(TOGETHER_S)
                    came.clear()
                    ids = watch.take()
                    if self._id is None or self._id in ids or now() >= due:
                        break
        finally:
            self._changes.end(watch)

    async def _read(self) -> str:
        organization = self._audience.organization.id
        try:
            found = await self._deployments.run(self._deployments.find, organization, self._name)
        except NotFound:
            self._id = None
            return "null"
        self._id = found.id
        detail = await self._status.detail(found, self._audience.origin)
        self._is_moving = any((detail.get("rates") or {}).values())
        return one_line(detail)


def one_line(value: Mapping[str, Any]) -> str:
    """As JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
