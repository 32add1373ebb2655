"""The gateway's tests run on the gateway's event loop, against real sockets."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from hotplate.serving.gateway.fleet.discovery import SETTING
from tests.support.gateway.control_planes import ControlPlane
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import PATIENCE_S

TEST_S = 1.5 * PATIENCE_S
HERE = f"{Path(__file__).parent}/"


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if _of_a_gateway(item):
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ends a test that hangs: uvloop swallows the exception by which pytest-timeout does it."""
    for item in items:
        if _of_a_gateway(item) and isinstance(item, pytest.Function):
            item.obj = _limited(item.obj)


def _of_a_gateway(item: pytest.Item) -> bool:
    """Whether it runs on the gateway's loop: one of this folder's, as hooks see all items."""
    return str(item.path).startswith(HERE)


def _limited(test: Callable[..., Any]) -> Callable[..., Any]:
    if not inspect.iscoroutinefunction(test):
        return test

    @functools.wraps(test)
    async def limited(**fixtures: Any) -> None:
        async with asyncio.timeout(TEST_S):
            await test(**fixtures)

    return limited


@pytest.fixture(scope="session", autouse=True)
def meeting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Gateways of other tests, which run beside this one, are of other fleets: all tests have one
    token for their control planes, and many one name for their deployment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, str(tmp_path_factory.mktemp("meeting")))
        yield


@pytest.fixture
async def kitchen() -> AsyncIterator[Kitchen]:
    kitchen = Kitchen()
    await kitchen.open()
    yield kitchen
    async with asyncio.timeout(TEST_S):
        await kitchen.close()


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    plane = ControlPlane()
    await plane.start()
    yield plane
    await plane.stop()
