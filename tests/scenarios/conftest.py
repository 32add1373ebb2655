"""One platform, one laptop and one environment for all scenarios of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.scenarios.bentos import KITCHEN
from tests.scenarios.laptop import Laptop, deployed
from tests.scenarios.platform_process import Platform


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A running platform. It ends with Ctrl-C, and leaves nothing behind."""
    platform = Platform(tmp_path_factory.mktemp("platform") / "data")
    try:
        asyncio.run(platform.start())
        yield platform
        assert asyncio.run(platform.stop()) == 0
        assert platform.processes() == []
    finally:
        platform.destroy()


@pytest.fixture(scope="session")
def laptop(tmp_path_factory: pytest.TempPathFactory, platform: Platform) -> Laptop:
    """A laptop that is logged in to the platform."""
    laptop = Laptop(tmp_path_factory.mktemp("laptop"))
    asyncio.run(laptop.login(platform))
    return laptop


@pytest.fixture(scope="session")
def kitchen(platform: Platform, laptop: Laptop) -> str:
    """The tag of a bento whose service shows what happens to its requests.

    It has been deployed once, so that the environment of all the scenarios' bentos is there.
    """
    return asyncio.run(_build_kitchen(platform, laptop))


async def _build_kitchen(platform: Platform, laptop: Laptop) -> str:
    tag = await laptop.build("kitchen", KITCHEN)
    async with deployed(platform, laptop, tag, "first"):
        return tag
