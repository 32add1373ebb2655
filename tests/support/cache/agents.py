"""Agents of a test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.client import AgentClient


@asynccontextmanager
async def agent(data: Path, **options: Any) -> AsyncIterator[AgentClient]:
    """A client of one that runs meanwhile."""
    async with run(AgentSettings(data, **options)) as url:
        client = AgentClient(url, options.get("token", ""), patience_s=0)
        try:
            yield client
        finally:
            await client.close()
