"""Checks of the gateway, the agent, the database and the disks, each with what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError
from hotplate.machine.free_space import FreeSpace
from hotplate.platform.controller.gateways.route_links import RouteLinks
from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.parts import Store
from hotplate.platform.upkeep.health import Check

AGENT_LIMIT_S = 5.0
UP_RUNS = "see that 'hotplate up' runs"

Asked = Callable[[], Awaitable[str]]


class OneAgent:
    """The agent of this machine, as `checks` asks it."""

    def __init__(self, agent: AgentClient) -> None:
        self._agent = agent

    async def answers(self) -> str:
        """Why it does not; empty = it does."""
        try:
            async with asyncio.timeout(AGENT_LIMIT_S):
                await self._agent.check()
        except (CacheError, TimeoutError) as error:
            silent = f"agent {self._agent.url} gave no answer within {AGENT_LIMIT_S:g} s"
            return (
                f"{str(error) or silent}: replicas that are ready go on, and no new one can start "
                f"until it does; {UP_RUNS}, and the log of the agent"
            )
        return ""

    async def troubles(self) -> str:
        """What it is short of."""
        try:
            async with asyncio.timeout(AGENT_LIMIT_S):
                return " ".join(await self._agent.troubles())
        except (CacheError, TimeoutError):
            return ""  # the other check says so

    async def held(self) -> Sequence[dict[str, Any]] | None:
        """What it has of files; None = it does not answer."""
        try:
            async with asyncio.timeout(AGENT_LIMIT_S):
                return await self._agent.held()
        except (CacheError, TimeoutError):
            return None


def checks(
    gateways: RouteLinks,
    store: Store,
    rooms: Sequence[FreeSpace],
    agent_answers: Asked,
    agent_troubles: Asked,
    remedy: str = UP_RUNS,
) -> list[Check]:
    """The gateway, the agent, the database, and the disks; `remedy` says where to look when there
    is no gateway."""

    async def gateway() -> str:
        if gateways.connected:
            return ""
        return (
            "no gateway is connected to the control plane: nothing is scaled or woken, and "
            f"requests go to the replicas that the gateway knew last; {remedy}, and the log of the "
            "gateway"
        )

    async def database() -> str:
        try:
            await store.run(store.check)
        except StoreFailed as error:
            return f"{error}: deployments go on as they are and cannot be changed"
        return ""

    async def disk() -> str:
        return next((short for room in rooms if (short := room.shortage)), "")

    return [
        Check("the gateway", "GatewayLost", "GatewayBack", gateway),
        Check("the agent", "AgentLost", "AgentBack", agent_answers),
        Check("the agent's cache", "CacheShort", "CacheEnough", agent_troubles),
        Check("the database", "StoreFailed", "StoreBack", database),
        Check("the disk", "DiskShort", "DiskEnough", disk),
    ]
