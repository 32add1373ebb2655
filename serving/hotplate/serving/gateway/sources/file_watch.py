"""Follows a file of routes: what it says is in force within a second, and no mistake in it is."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from hotplate.machine.address import Address
from hotplate.serving.gateway.all_routes import Gateway
from hotplate.serving.gateway.errors import BadRoutesFile
from hotplate.serving.gateway.fleet.discovery import register_keys
from hotplate.serving.gateway.protocol.routes import Route, RouteTable
from hotplate.serving.gateway.sources.routes_file import RoutesFile, read

log = logging.getLogger(__name__)

LOOK_S = 0.2
"""How often the file is checked. It is read once it has stayed the same for as long, because a file
that is written in place is incomplete for a moment."""

Stamp = tuple[int, ...] | None
"""What changes with a file's content, or with another file in its place; None = there is none."""


def keys_of(path: Path, routes: Iterable[Route]) -> Sequence[str]:
    """The keys of gateways that serve the file, or one of its deployments."""
    # Not the target of a link: a mounted configuration's is another with each change.
    keys = [f"routes {path.parent.resolve() / path.name}"]
    for route in routes:
        places = route.hosts or [str(Address(route.host, route.port))]
        keys += [f"deployment {route.name} {place}" for place in places]
    return keys


class RoutesWatch:
    """Keeps a gateway's table in step with a file."""

    def __init__(
        self, gateway: Gateway, path: Path, move_admin: Callable[[str], Awaitable[object]]
    ) -> None:
        """`move_admin` is called with the operator's address when that has changed in the file; it
        raises OSError if the address cannot be listened on."""
        self.path = path
        self.error = ""
        """Why the current file is not in force; empty = it is."""
        self._gateway = gateway
        self._move_admin = move_admin
        self._stamp = self._look()
        self._file: RoutesFile

    async def load(self) -> str:
        """Reads the file; returns the operator's address that it names. Raises `BadRoutesFile`."""
        self._file = await asyncio.to_thread(read, self.path)
        return self._file.admin

    async def start(self) -> None:
        """Applies what was loaded. Raises `BadRoutesFile` if none of it can be served."""
        await self._apply(self._file)
        servers = self._gateway.servers
        if servers and all(server.error for server in servers):
            raise BadRoutesFile(f"{self.path}: no deployment can be served: {servers[0].error}.")

    async def run(self) -> None:
        """Follows the file until cancelled."""
        seen = self._stamp
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._look()
            if now != self._stamp and now == seen:
                self._stamp = now
                await self._reread()
            seen = now

    def describe(self) -> dict[str, Any]:
        return {"routes": str(self.path), "error": self.error}

    async def _reread(self) -> None:
        try:
            file = await asyncio.to_thread(read, self.path)
        except BadRoutesFile as error:
            self.error = f"{error} The routes of before stay in force."
            log.error("%s", self.error)
            return
        self.error = ""
        before, self._file = self._file, file
        await self._apply(file)
        if file.admin != before.admin:
            try:
                await self._move_admin(file.admin)
            except OSError as error:
                self.error = f"{self.path}: admin = {file.admin!r} cannot be listened on: {error}."
                log.error("%s It stays where it was.", self.error)

    async def _apply(self, file: RoutesFile) -> None:
        if self._gateway.fleet is not None:
            register_keys(self._gateway.fleet.folder, keys_of(self.path, file.routes))
        table = RouteTable(self._gateway.version + 1, file.routes, shared=file.shared)
        await self._gateway.apply(table)
        names = ", ".join(route.name for route in file.routes) or "no deployment"
        log.info("%s is in force (version %d): %s", self.path, table.version, names)

    def _look(self) -> Stamp:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
