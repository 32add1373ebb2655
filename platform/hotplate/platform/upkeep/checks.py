"""Checks of the gateway, the agent, the database and the disks, each with what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError
from hotplate.machine.free_space import FreeSpace
from hotplate.platform.controller.gateways.route_links import RouteLinks
from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.parts import Store
from hotplate.platform.upkeep.health import Check

AGENT_LIMIT_S = 5.0


def checks(
    gateways: RouteLinks, agent: AgentClient, store: Store, rooms: Sequence[FreeSpace]
) -> list[Check]:
    """The gateway, the node's agent, the database, and the disks."""

    async def gateway() -> str:
        if gateways.connected:
            return ""
        return (
            "no gateway is connected to the control plane: nothing is scaled or woken, and "
            "requests go to the replicas that the gateway knew last; see that 'hotplate up' runs, "
            "and the log of the gateway"
        )

    async def agent_answers() -> str:
        try:
            async with asyncio.timeout(AGENT_LIMIT_S):
                await agent.check()
        except (CacheError, TimeoutError) as error:
            why = str(error) or f"agent {agent.url} gave no answer within {AGENT_LIMIT_S:g} s"
            return (
                f"{why}: replicas that are ready go on, and no new one can start until it does; "
                "see that 'hotplate up' runs, and the log of the agent"
            )
        return ""

    async def cache() -> str:
        try:
            async with asyncio.timeout(AGENT_LIMIT_S):
                return " ".join(await agent.troubles())
        except (CacheError, TimeoutError):
            return ""  # the agent's own check says so

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
        Check("the agent's cache", "CacheShort", "CacheEnough", cache),
        Check("the database", "StoreFailed", "StoreBack", database),
        Check("the disk", "DiskShort", "DiskEnough", disk),
    ]
