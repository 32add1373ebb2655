"""`localhost` leads to two addresses: whoever has the other one has its callers' tokens."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from hotplate.platform.api.web.listener import ApiListener
from hotplate.serving.gateway.callers.route_listener import RouteListener
from tests.support.ports import free_port

OTHER = {"127.0.0.1": "::1", "0.0.0.0": "::1", "::1": "127.0.0.1"}


def taken(host: str, port: int) -> bool:
    """Whether nobody else can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


@pytest.fixture(autouse=True)
def there_are_two() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError as error:
        pytest.skip(f"this machine has no other loopback address: {error.strerror}")


@pytest.fixture
async def listener() -> AsyncIterator[RouteListener]:
    listener = RouteListener("chat", asyncio.Protocol, lambda: None)
    yield listener
    listener.close()


@pytest.mark.parametrize("host", OTHER)
async def test_a_deployment_has_both(host: str, listener: RouteListener) -> None:
    port = free_port()
    await listener.listen(host, port)
    assert not listener.error
    assert taken(host, port)
    assert taken(OTHER[host], port)
    assert len(listener.descriptors) == 2
    listener.close()
    await asyncio.sleep(0)
    assert not taken(OTHER[host], port)


async def test_who_has_the_other_one_keeps_no_deployment_from_its_own(
    listener: RouteListener,
) -> None:
    port = free_port()
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        await listener.listen("127.0.0.1", port)
        assert not listener.error
        assert taken("127.0.0.1", port)


async def test_the_api_has_both() -> None:
    listener = ApiListener(web.Application())
    port = await listener.start("127.0.0.1", 0)
    try:
        assert taken("::1", port)
        _, writer = await asyncio.open_connection("::1", port)
        writer.close()
    finally:
        await listener.close()
    assert not taken("::1", port)


async def test_who_has_the_other_one_keeps_the_api_from_nothing() -> None:
    port = free_port()
    listener = ApiListener(web.Application())
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        assert await listener.start("127.0.0.1", port) == port
    await listener.close()
