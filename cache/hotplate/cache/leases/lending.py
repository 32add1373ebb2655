"""The Unix socket over which replicas borrow blobs.

One connection is one lease on one file. Lines of JSON:

    replica → {"open": "<path below the trees' folder>"}
              or {"open_url": "<URL of one file>", "token": "<the agent's>", "only_wanted": bool}:
              whoever has the agent's token may open any URL; such a file is never linked. One of
              which only what is wanted is to come is forgotten when its last reader leaves
    agent   → {"size": n, "chunk": 8388608, "done": [verified chunks]} + a read-only descriptor
    agent   → {"done": [i, …]} as chunks are verified, {"complete": true} after the last one,
              {"linked": true} once the path itself is the complete file,
              {"error": {"code", "message"}} if it cannot be had
    replica → {"want": [i, …]} at any time: these first
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import resource
import socket
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any

from hotplate.cache.catalog.pulls import Pulls
from hotplate.cache.catalog.trees import Trees
from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.errors import CacheError, TooMany, Unauthorized
from hotplate.cache.leases.agent_socket import FIRST_LINE_S, AgentSocket, LineReader
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.tiers.durable_folder import DurableFolder
from hotplate.machine.background import BackgroundTasks

log = logging.getLogger(__name__)

SOCKET_NAME = "agent.sock"
_DOORS = "doors.json"

MOST_CONNECTIONS = 1024
"""Through one door. Each takes two descriptors, so it is an eighth of them where they are few."""

_ACCEPT_PAUSE_S = 0.5
"""Until the next try when there is no descriptor for a connection."""


class Lending:
    """Serves `<folder>/agent.sock` for the operator, and a socket for each replica."""

    def __init__(self, node: Trees, pulls: Pulls, folder: Path, token: str = "") -> None:
        """Doors of an earlier run are opened again where their folders are still there."""
        self._node = node
        self._pulls = pulls
        self._token = token
        self._folder = DurableFolder(folder)
        self._tasks: dict[AgentSocket, BackgroundTasks] = {}
        self.socket_path = folder / SOCKET_NAME
        """The operator's."""
        self._open_door(self.socket_path, None)
        for path, manifests in self._kept().items():
            with contextlib.suppress(OSError):  # that replica has ended
                self._open_door(Path(path), frozenset(manifests))

    async def admit(self, path: Path, manifests: Iterable[str]) -> None:
        """Opens a door at `path` that leads to these manifests' files, until its folder goes.

        Raises CacheError where no socket can be.
        """
        ended = [door for door in self._tasks if door.path == path or not door.there]
        await asyncio.gather(*map(self._close_door, ended))
        try:
            self._open_door(path, frozenset(manifests))
            await asyncio.to_thread(self._folder.put, _DOORS, self._doors())
        except OSError as exc:
            raise CacheError(f"the agent cannot listen at {path} ({exc.strerror})") from exc

    async def close(self) -> None:
        for tasks in self._tasks.values():
            await tasks.cancel()
        for door in self._tasks:
            door.stop()

    def _open_door(self, path: Path, manifests: frozenset[str] | None) -> None:
        limit = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8)
        door = AgentSocket(path, manifests, limit)
        tasks = self._tasks[door] = BackgroundTasks()
        tasks.start(self._accept(door))

    async def _close_door(self, door: AgentSocket) -> None:
        tasks = self._tasks.pop(door, None)
        if tasks is not None:
            await tasks.cancel()
        door.close()

    def _doors(self) -> bytes:
        doors = {str(d.path): sorted(d.manifests) for d in self._tasks if d.manifests is not None}
        return json.dumps(doors).encode()

    def _kept(self) -> dict[str, list[str]]:
        try:
            kept: dict[str, list[str]] = json.loads((self._folder.root / _DOORS).read_bytes())
            return kept
        except (FileNotFoundError, ValueError):
            return {}

    async def _accept(self, door: AgentSocket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(door.listener)
            except OSError as exc:  # of too many open files, say: some are closed again
                log.error("%s: no connection can be taken (%s)", door.path, exc.strerror)
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            if not door.lets_in(connection):
                connection.close()
                continue
            self._tasks[door].start(self._serve(connection, door))
            await door.pace(0)

    async def _serve(self, connection: socket.socket, door: AgentSocket) -> None:
        with connection, contextlib.suppress(OSError):  # the replica has left
            lines = LineReader(connection, door)
            try:
                with door.entered():
                    await self._lease(lines, door)
            except CacheError as error:
                await _refuse(lines, error.code, str(error))
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                await _refuse(lines, "bad_request", f"not a request of this socket: {error!r}")

    async def _lease(self, lines: LineReader, door: AgentSocket) -> None:
        try:
            async with asyncio.timeout(FIRST_LINE_S):
                request = await lines.receive()
        except TimeoutError:
            raise TooMany(f"nothing was asked for in {FIRST_LINE_S:g} s") from None
        if request is None:
            return
        path, linked, holding = await self._open(request, door)
        async with self._node.holdings.lend(holding) as fd:
            told = len(holding.done)
            opening = {
                "size": holding.content.size_bytes,
                "chunk": CHUNK_BYTES,
                "done": holding.done[:told],
            }
            await lines.send(opening, fd)
            telling = asyncio.create_task(_tell(lines, linked, path, holding, told))
            hearing = asyncio.create_task(self._hear(lines, holding))
            try:
                await asyncio.wait({telling, hearing}, return_when=asyncio.FIRST_EXCEPTION)
                await (telling if telling.done() else hearing)
                await hearing
            finally:
                telling.cancel()
                hearing.cancel()

    async def _open(
        self, request: dict[str, Any], door: AgentSocket
    ) -> tuple[str, Set[str], CachedBlob]:
        """The file's name, the names that are complete files by now, and what there is of it."""
        if door.manifests is None:
            given = str(request.get("token", "")) if self._token else ""
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                raise Unauthorized(
                    "this socket is the operator's and needs the agent's token; set its token "
                    "file, or use the socket that a replica is given (HOTPLATE_AGENT_SOCKET)"
                )
            if "open_url" in request:
                url = str(request["open_url"])
                whole = not request.get("only_wanted", False)
                return url, frozenset(), await self._pulls.open(url, whole)
        elif "open_url" in request:
            raise Unauthorized("a replica opens files of its own revision; a URL is not one")
        tree, entry = await self._node.locate(str(request["open"]), door.manifests)
        return entry.path, tree.linked, tree.holdings[entry.path]

    async def _hear(self, lines: LineReader, holding: CachedBlob) -> None:
        """Takes wishes until the replica leaves."""
        while (request := await lines.receive()) is not None:
            self._node.holdings.want(holding, [int(index) for index in request["want"]])
        raise ConnectionResetError


async def _tell(
    lines: LineReader, linked: Set[str], path: str, holding: CachedBlob, told: int
) -> None:
    """Pushes news of the file until there will be none."""
    complete = False

    def has_news() -> bool:
        more = len(holding.done) > told or (holding.complete and not complete)
        return more or path in linked

    while not (complete and path in linked):
        await holding.until(has_news)
        if len(holding.done) > told:
            news, told = holding.done[told:], len(holding.done)
            await lines.send({"done": news})
        if holding.complete and not complete:
            complete = True
            await lines.send({"complete": True})
    await lines.send({"linked": True})


async def _refuse(lines: LineReader, code: str, message: str) -> None:
    await lines.send({"error": {"code": code, "message": message}})
