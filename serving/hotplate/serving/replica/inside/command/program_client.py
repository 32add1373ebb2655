"""How a replica's worker reaches the program of its command; runs in the replica (Python >= 3.9).

BentoML uses a port of this machine. A program in a network of its own has none here: it is reached
by a Unix socket in the replica's folder, so that no other process on this machine reaches it. Which
of the two applies is known when the program starts, after BentoML has made its clients; so they
check at each connection.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import httpx


class ProgramAddress:
    """The address of a program: a Unix socket, if that exists."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # The folder's descriptor makes a name short enough for an address (107 bytes).
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.name = f"/proc/self/fd/{self._folder}/{path.name}"

    @property
    def there(self) -> bool:
        return self._path.exists()

    def redirect_clients(self, proxy: Any) -> None:
        """Have the clients that BentoML's module makes go by the socket once it is there."""
        proxy.aiohttp = _Instead(aiohttp, TCPConnector=self.connector)
        proxy.httpx = _Instead(httpx, AsyncClient=self.httpx_client)

    def connector(self, limit: int = 100) -> _Connector:
        return _Connector(self, limit)

    def httpx_client(self, **settings: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=_Transport(self), **settings)


class _Connector(aiohttp.UnixConnector):
    def __init__(self, address: ProgramAddress, limit: int) -> None:
        super().__init__(address.name, limit=limit)
        self._address = address
        self._ports = aiohttp.TCPConnector()

    async def _create_connection(self, *request: Any) -> Any:
        if self._address.there:
            return await super()._create_connection(*request)
        return await self._ports._create_connection(*request)


class _Transport(httpx.AsyncBaseTransport):
    def __init__(self, address: ProgramAddress) -> None:
        self._address = address
        self._socket = httpx.AsyncHTTPTransport(uds=address.name)
        self._ports = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        by = self._socket if self._address.there else self._ports
        return await by.handle_async_request(request)

    async def aclose(self) -> None:
        await self._socket.aclose()
        await self._ports.aclose()


class _Instead(ModuleType):
    """A module with some attributes replaced."""

    def __init__(self, stock: ModuleType, **instead: Any) -> None:
        super().__init__(stock.__name__)
        self._stock = stock
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)
