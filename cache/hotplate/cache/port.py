"""The agent's port: requests for chunks go to threads, all others to the control interface."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable

from hotplate.cache.errors import CacheError
from hotplate.cache.peers.chunk_server import PREFIX, ChunkServer
from hotplate.machine.address import Address
from hotplate.machine.background import BackgroundTasks

_FIRST_BYTES_S = 30.0
"""A connection that sends nothing for that long is closed."""


class Port:
    """Listens on one address. Lives on the event loop."""

    def __init__(
        self,
        listener: socket.socket,
        peers: ChunkServer,
        control: Callable[[], asyncio.Protocol],
    ) -> None:
        """`control` makes the protocol of a connection that does not ask for chunks."""
        self._listener = listener
        self._peers = peers
        self._control = control
        self._tasks = BackgroundTasks()
        self._tasks.start(self._accept())

    @property
    def url(self) -> str:
        return f"http://{Address(*self._listener.getsockname()[:2])}"

    async def close(self) -> None:
        await self._tasks.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # there are no descriptors left: connections wait until there are some
                await asyncio.sleep(0.1)
                continue
            self._tasks.start(self._hand_over(connection))

    async def _hand_over(self, connection: socket.socket) -> None:
        try:
            first = await asyncio.wait_for(_peek(connection), _FIRST_BYTES_S)
        except (OSError, TimeoutError):
            connection.close()
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        if first == PREFIX:
            if not self._peers.serve(connection):
                connection.close()
            return
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # the other side has closed meanwhile
            await loop.connect_accepted_socket(self._control, connection)


async def _peek(connection: socket.socket) -> bytes:
    """The first bytes of a connection, left where they are.

    Raises OSError when the other side leaves first.
    """
    connection.setblocking(False)
    # Fewer bytes wake nothing: half a line would otherwise be looked at again and again.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(PREFIX))
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(connection, _set, readable)
    try:
        await readable
    finally:
        loop.remove_reader(connection)
    seen = connection.recv(len(PREFIX), socket.MSG_PEEK)
    if not seen:
        raise ConnectionResetError
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return seen


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def listen(host: str, port: int) -> socket.socket:
    """Raises CacheError when the address cannot be had."""
    family = socket.AF_INET6 if _is_ipv6(host) else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as exc:
        listener.close()
        raise CacheError(
            f"port {port} of {host} cannot be had ({exc.strerror}); choose another --host or --port"
        ) from exc
    except BaseException:  # also when interrupted: cleaned up, and raised again
        listener.close()
        raise
    return listener


def _is_ipv6(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).version == 6
    return False
