"""A platform on which the bento `kitchen:v1` was deployed once: its environment exists."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.services.bentos import KITCHEN, SLEEPY


@dataclass(frozen=True)
class Kitchens:
    """Where deployments of the bento are made."""

    platform: Platform
    rough: RoughClient
    tag: str

    async def deploy(self, name: str, *, slots: int, **scaling: object) -> str:
        """The URL of a deployment that runs. Its scaling is `SLEEPY`, changed by `scaling`."""
        await self.rough.deploy(name, self.tag, Kitchen=settings(slots, **scaling))
        await self.rough.settled(name, "running", "scaled-to-zero")
        return await self.platform.url_of(name)


def settings(slots: int, **scaling: object) -> dict[str, object]:
    """Of the service, as the API takes them."""
    return {
        "scaling": {**SLEEPY, **scaling},
        "config_overrides": {"traffic": {"concurrency": slots, "timeout": 300}},
    }


@asynccontextmanager
async def kitchens(folder: Path, ports: int = 10, source: str = KITCHEN) -> AsyncIterator[Kitchens]:
    """In the empty folder. `ports` is how many deployments can be made; `source` is the bento's,
    whose service is `Kitchen`."""
    platform = Platform(folder / "data", ports=ports)
    try:
        await platform.start()
        laptop = Laptop(folder / "laptop")
        laptop.home.mkdir()
        await laptop.login(platform)
        tag = await laptop.build("kitchen", source)
        await laptop.deploy("first", tag, Kitchen={"scaling": SLEEPY})
        async with RoughClient(platform) as rough:
            yield Kitchens(platform, rough, tag)
    finally:
        platform.destroy()
