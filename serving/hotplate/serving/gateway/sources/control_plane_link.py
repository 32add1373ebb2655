"""The gateway's line to the control plane: route tables in, demand reports out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from dataclasses import replace
from typing import Any

import aiohttp

from hotplate.serving.gateway.all_routes import Gateway
from hotplate.serving.gateway.protocol.control_planes import LEADER_FIELD, ControlPlanes
from hotplate.serving.gateway.protocol.headers import FLEET_FIELD, GATEWAY_FIELD
from hotplate.serving.gateway.protocol.routes import Route, RouteTable
from hotplate.serving.gateway.sources.last_table import TableFile
from hotplate.serving.gateway.sources.pod_finder import PodFinder
from hotplate.serving.gateway.sources.report_schedule import ReportSchedule

log = logging.getLogger(__name__)

BACKOFF_S = (0.1, 2.0)
"""First and longest pause before connecting again."""
HEARTBEAT_S = 20.0
"""A control plane that vanished without a notice is noticed after this."""
HEARTBEAT_OF_SEVERAL_S = 6.0
"""The same where another one may act by then: within half as long again, before a term of 10 s of
the one that has stopped is over."""
HANDSHAKE_S = 5.0
"""One that was stopped still accepts connections, and says nothing on them."""
MAX_TABLE_BYTES = 64 << 20


class ControlPlaneLink:
    """Keeps a WebSocket to the control plane and the gateway's table in step with it.

    While the line is down the gateway goes on with the last table it got.
    """

    def __init__(
        self,
        gateway: Gateway,
        file: TableFile,
        reports: ReportSchedule,
        *,
        planes: ControlPlanes,
        token: str,
        listens: tuple[Route, ...] = (),
        finder: PodFinder | None = None,
    ) -> None:
        """The gateway notifies `reports` of each change of its demand. `planes` follows the control
        plane that acts: another one turns the line away. With `listens` all callers arrive there,
        whatever addresses the table has. `finder` finds the pods of routes that name them."""
        self._gateway = gateway
        self._file = file
        self._planes = planes
        self._headers = {"Authorization": f"Bearer {token}"}
        if gateway.fleet is not None:
            self._headers[GATEWAY_FIELD] = gateway.fleet.id
            self._headers[FLEET_FIELD] = gateway.fleet.name
        self._reports = reports
        self._listens = listens
        self._finder = finder
        self._table: RouteTable | None = None
        """The one in force, as it came; None = there is none."""
        self._applied: RouteTable | None = None
        """The same as it was applied, with the pods that were found."""
        self._applying = asyncio.Lock()
        self._next: RouteTable | None = None
        """The table that came last, if it is not in force yet."""
        self._came = asyncio.Event()

    async def load(self) -> str:
        """The control plane names no operator's address."""
        return ""

    async def start(self) -> None:
        """Puts the last table in force, if there is one on disk."""
        last = self._file.load()
        if last is not None:
            await self._apply(last)

    def describe(self) -> dict[str, Any]:
        return {"connected": self._reports.connected}

    async def run(self) -> None:
        """Follows the control plane, and pods, until cancelled."""
        async with asyncio.TaskGroup() as following:
            following.create_task(self._connect_again())
            if self._finder is not None:
                following.create_task(self._finder.run())
                following.create_task(self._follow_pods(self._finder))

    async def _connect_again(self) -> None:
        pause, longest = BACKOFF_S[0], BACKOFF_S[1] / self._planes.count
        async with aiohttp.ClientSession(headers=self._headers) as session:
            while True:
                try:
                    await self._connect(session)
                    pause = BACKOFF_S[0]
                except (aiohttp.ClientError, OSError) as error:
                    if pause == BACKOFF_S[0]:  # once, not with every try
                        url = self._planes.url
                        log.warning("control plane %s: %r; it is tried again", url, error)
                    self._planes.try_next(_leader_in(error))
                await asyncio.sleep(pause)
                pause = min(longest, pause * 2)

    async def _connect(self, session: aiohttp.ClientSession) -> None:
        async with asyncio.timeout(HANDSHAKE_S):
            socket = await session.ws_connect(
                f"{self._planes.url}/internal/gateway",
                heartbeat=HEARTBEAT_S if self._planes.count == 1 else HEARTBEAT_OF_SEVERAL_S,
                max_msg_size=MAX_TABLE_BYTES,
            )
        try:
            self._reports.connected = True
            self._reports.request()
            reader = asyncio.create_task(self._read(socket))
            reader.add_done_callback(lambda _: self._came.set())
            writer = asyncio.create_task(self._write(socket))
            try:
                await self._put_in_force(reader)
            finally:
                self._reports.connected = False
                for task in (reader, writer):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, OSError, aiohttp.ClientError):
                        await task
        finally:
            await socket.close()

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Takes tables. The first of a connection is in force whatever its version, because the
        control plane may have begun anew; after it only higher ones."""
        newest = -math.inf
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                continue
            try:
                data = json.loads(message.data)
                if data["type"] != "routes":
                    continue
                table = RouteTable.from_json(data)
            except (ValueError, TypeError, KeyError) as error:
                log.warning("the control plane sent what is not a route table: %r", error)
                continue
            if table.version > newest:
                newest, self._next = table.version, table
                self._came.set()
            else:
                self._reports.request()

    async def _put_in_force(self, reader: asyncio.Task[None]) -> None:
        """Applies and keeps each table, and says so, until the connection has ended: its last one,
        too. Where tables come faster than that, those in between are left out. Raises what the
        connection has ended with."""
        while self._next is not None or not reader.done():
            if self._next is None:
                await self._came.wait()
                self._came.clear()
                continue
            table, self._next = self._next, None
            await self._apply(table)
            await asyncio.to_thread(self._file.save, table)
            self._reports.request()
        reader.result()

    async def _apply(self, table: RouteTable) -> None:
        async with self._applying:
            self._table = table
            if self._listens:
                routes = tuple(replace(route, host="", port=0) for route in table.routes)
                table = replace(table, routes=routes, shared=self._listens)
            if self._finder is not None:
                table = self._finder.complete(table)
            if self._finder is None or table != self._applied:
                self._applied = table
                await self._gateway.apply(table)

    async def _follow_pods(self, finder: PodFinder) -> None:
        """Applies the table again as pods come and go."""
        while True:
            await finder.news.wait()
            finder.news.clear()
            if self._table is not None:
                await self._apply(self._table)

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await self._reports.due()
            now = asyncio.get_running_loop().time()
            report = replace(
                self._gateway.report(),
                used=self._gateway.tokens.take_used(),
                counted=self._gateway.take_counts(now),
            )
            if self._reports.take_if_changed(report):
                await socket.send_json(report.to_json(now))


def _leader_in(error: Exception) -> str:
    """Which control plane acts, as one says that turns us away; empty = it says nothing."""
    if isinstance(error, aiohttp.WSServerHandshakeError) and error.headers is not None:
        return str(error.headers.get(LEADER_FIELD, ""))
    return ""
