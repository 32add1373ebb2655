"""A platform to which the bento `kitchen:v1` was pushed; its first deployment builds the
environment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import DEPLOYMENT_PORTS, Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.bentos import KITCHEN, SLEEPY
from tests.support.services.calling import call

AWAKE = {"min_replicas": 1, "max_replicas": 1}


@dataclass(frozen=True)
class Kitchens:
    """Where deployments of the bento are made."""

    platform: Platform
    laptop: Laptop
    rough: RoughClient
    bento: Bento

    async def deploy(self, name: str, *, slots: int = 1, **scaling: object) -> str:
        """The URL of a deployment that runs, or has run. Its scaling is `SLEEPY`, changed by
        `scaling`."""
        await self.rough.deploy(name, self.bento.tag, Kitchen=service_settings(slots, **scaling))
        await self.rough.settled(name, "running", "scaled-to-zero")
        return await self.platform.url_of(name)

    async def warm(self) -> None:
        """Returns once the next replica is forked from a template, or becomes of a standby."""

        async def ready() -> bool:
            return any(pool["ready"] for pool in (await self.platform.page("standby"))["pools"])

        await until(ready)

    async def come_and_go(self, name: str) -> dict[str, Any]:
        """Uploads, deploys, calls and deletes a bento that nobody has seen; the answer, whose
        `version` is the name."""
        source = KITCHEN.replace('"v1"', f'"{name}"')
        tag = await self.rough.push(self.bento.changed(name, {"src/service.py": source}))
        await self.rough.deploy(name, tag, Kitchen=service_settings())
        answer: dict[str, Any] = await call(f"{await self.platform.url_of(name)}/cook")
        await self.platform.delete(name)
        return answer


def service_settings(slots: int = 1, /, **scaling: object) -> dict[str, object]:
    """As the API takes them."""
    return {
        "scaling": {**SLEEPY, **scaling},
        "config_overrides": {"traffic": {"concurrency": slots, "timeout": 300}},
    }


@asynccontextmanager
async def kitchens(
    folder: Path,
    *,
    source: str = KITCHEN,
    ports: int = DEPLOYMENT_PORTS,
    environ: Mapping[str, str] | None = None,
    settings: str = "",
    standby: str = "mode = 'off'",
    database: str = "",
) -> AsyncIterator[Kitchens]:
    """In the empty folder. `source` is the bento's, whose service is `Kitchen`; `ports` is how many
    deployments can be made, `environ` the platform's, over ours; `settings` are lines of its
    `hotplate.toml`, `standby` those of its section of that name, `database` is a URL."""
    platform = Platform(
        folder / "data",
        ports=ports,
        environ=environ,
        settings=settings,
        standby=standby,
        database=database,
    )
    try:
        await platform.start()
        laptop = await Laptop.at(folder / "laptop", platform)
        await laptop.build("kitchen", source)
        bento = Bento.read(laptop.home / "bentos" / "kitchen" / "v1")
        async with RoughClient(platform) as rough:
            await rough.push(bento)
            yield Kitchens(platform, laptop, rough, bento)
    finally:
        platform.destroy()
