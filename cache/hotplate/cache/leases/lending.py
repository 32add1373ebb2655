"""The Unix socket over which replicas borrow blobs.

One connection is one lease on one file. Lines of JSON:

    replica → {"open": "<path below the trees' folder>"}
              or {"open_url": "<URL of one file>", "token": "<the agent's>", "only_wanted": bool}:
              with the agent's token any URL may be opened; such a file is never linked. With
              only_wanted, it is forgotten when its last reader closes it
    agent   → {"size": n, "chunk": 8388608, "done": [verified chunks]} + a read-only descriptor
    agent   → {"done": [i, …]} as chunks are verified, {"complete": true} after the last one,
              {"linked": true} once the path itself is the complete file,
              {"error": {"code", "message"}} if it cannot be brought
    replica → {"want": [i, …]} at any time: these first

A build in a pod asks for one thing more, and so does a replica in one:

    build   → {"publish": true}
    agent   → {"published": "<manifest>"} once its folder is stored, or an error as above
    replica → {"keep": true}
    agent   → {"kept": true} once what it has imported and compiled is kept for later ones
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
from hotplate.cache.leases.agent_socket import FIRST_LINE_S, AgentSocket, Door, LineReader
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.tiers.durable_folder import DurableFolder
from hotplate.machine.background import BackgroundTasks

log = logging.getLogger(__name__)

SOCKET_NAME = "agent.sock"
_SOCKETS_FILE = "doors.json"

MOST_CONNECTIONS = 1024
"""Of one socket. Each takes two descriptors; where these are few, the limit is an eighth of
them."""

_ACCEPT_PAUSE_S = 0.5
"""Until the next try when there is no descriptor for a connection."""


class Lending:
    """Serves `<folder>/agent.sock` for the operator, and a socket for each replica."""

    def __init__(self, trees: Trees, pulls: Pulls, folder: Path, token: str = "") -> None:
        """Opens the sockets of an earlier run again where their folders are still there."""
        self._trees = trees
        self._pulls = pulls
        self._token = token
        self._folder = DurableFolder(folder)
        self._tasks: dict[AgentSocket, BackgroundTasks] = {}
        self.socket_path = folder / SOCKET_NAME
        """The operator's."""
        self._open_socket(self.socket_path, Door(None))
        for path, manifests in self._saved_sockets().items():
            with contextlib.suppress(OSError):  # that replica has ended
                self._open_socket(Path(path), Door(frozenset(manifests)))

    async def admit(self, path: Path, manifests: Iterable[str]) -> None:
        """Opens a socket at `path` that leads to these manifests' files, as long as its folder
        exists.

        Raises CacheError where no socket can be made.
        """
        await self.open_door(path, Door(frozenset(manifests)))
        try:
            await asyncio.to_thread(self._folder.put, _SOCKETS_FILE, self._sockets_json())
        except OSError as exc:
            raise CacheError(f"the agent cannot listen at {path} ({exc.strerror})") from exc

    async def open_door(self, path: Path, door: Door) -> None:
        """The same for this run of the agent only: the caller opens it again in the next one."""
        ended = [one for one in self._tasks if one.path == path or not one.there]
        await asyncio.gather(*map(self._close_socket, ended))
        try:
            self._open_socket(path, door)
        except OSError as exc:
            raise CacheError(f"the agent cannot listen at {path} ({exc.strerror})") from exc

    def has_door(self, path: Path) -> bool:
        """Whether it listens there."""
        return any(one.path == path and one.there for one in self._tasks)

    async def close_door(self, path: Path) -> None:
        """Closes the socket at `path`, if there is one, and what came in through it."""
        ended = [one for one in self._tasks if one.path == path]
        await asyncio.gather(*map(self._close_socket, ended))

    async def close(self) -> None:
        for tasks in self._tasks.values():
            await tasks.cancel()
        for agent_socket in self._tasks:
            agent_socket.stop()

    def _open_socket(self, path: Path, door: Door) -> None:
        limit = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8)
        agent_socket = AgentSocket(path, door, limit)
        tasks = self._tasks[agent_socket] = BackgroundTasks()
        tasks.start(self._accept(agent_socket))

    async def _close_socket(self, agent_socket: AgentSocket) -> None:
        tasks = self._tasks.pop(agent_socket, None)
        if tasks is not None:
            await tasks.cancel()
        agent_socket.close()

    def _sockets_json(self) -> bytes:
        """Those of replicas; a pod's are opened again by its volume."""
        doors = {str(one.path): one.door for one in self._tasks if not one.door.folders}
        sockets = {
            path: sorted(door.manifests)
            for path, door in doors.items()
            if door.manifests is not None
        }
        return json.dumps(sockets).encode()

    def _saved_sockets(self) -> dict[str, list[str]]:
        try:
            saved: dict[str, list[str]] = json.loads(
                (self._folder.root / _SOCKETS_FILE).read_bytes()
            )
            return saved
        except (FileNotFoundError, ValueError):
            return {}

    async def _accept(self, agent_socket: AgentSocket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(agent_socket.listener)
            except OSError as exc:  # too many open files, perhaps: some will be closed
                log.error("%s: no connection can be taken (%s)", agent_socket.path, exc.strerror)
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            if not agent_socket.lets_in(connection):
                connection.close()
                continue
            self._tasks[agent_socket].start(self._serve(connection, agent_socket))
            await agent_socket.pace(0)

    async def _serve(self, connection: socket.socket, agent_socket: AgentSocket) -> None:
        with connection, contextlib.suppress(OSError):  # the replica has gone
            lines = LineReader(connection, agent_socket)
            try:
                with agent_socket.entered():
                    await self._lease(lines, agent_socket)
            except CacheError as error:
                await _refuse(lines, error.code, str(error))
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                await _refuse(lines, "bad_request", f"not a request of this socket: {error!r}")

    async def _lease(self, lines: LineReader, agent_socket: AgentSocket) -> None:
        try:
            async with asyncio.timeout(FIRST_LINE_S):
                request = await lines.receive()
        except TimeoutError:
            raise TooMany(f"nothing was asked for in {FIRST_LINE_S:g} s") from None
        if request is None:
            return
        if request.get("publish") is True and agent_socket.door.publish is not None:
            await lines.send({"published": await agent_socket.door.publish()})
            return
        if request.get("keep") is True and agent_socket.door.keep is not None:
            await agent_socket.door.keep()
            await lines.send({"kept": True})
            return
        path, linked, cached = await self._open(request, agent_socket)
        async with self._trees.blob_table.lend(cached) as fd:
            sent = len(cached.done)
            opening = {
                "size": cached.content.size_bytes,
                "chunk": CHUNK_BYTES,
                "done": cached.done[:sent],
            }
            await lines.send(opening, fd)
            sending = asyncio.create_task(_send_progress(lines, linked, path, cached, sent))
            receiving = asyncio.create_task(self._receive_wants(lines, cached))
            try:
                await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_EXCEPTION)
                await (sending if sending.done() else receiving)
                await receiving
            finally:
                sending.cancel()
                receiving.cancel()

    async def _open(
        self, request: dict[str, Any], agent_socket: AgentSocket
    ) -> tuple[str, Set[str], CachedBlob]:
        """The file's name, the names that are complete files by now, and the node's copy of it."""
        door = agent_socket.door
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
        path = door.path_here(str(request["open"]), self._trees.trees_root)
        tree, entry = await self._trees.locate(path, door.manifests)
        return entry.path, tree.linked, tree.cached_blobs[entry.path]

    async def _receive_wants(self, lines: LineReader, cached: CachedBlob) -> None:
        """Takes the chunks that the replica wants, until it closes."""
        while (request := await lines.receive()) is not None:
            self._trees.blob_table.want(cached, [int(index) for index in request["want"]])
        raise ConnectionResetError


async def _send_progress(
    lines: LineReader, linked: Set[str], path: str, cached: CachedBlob, sent: int
) -> None:
    """Sends which chunks have come, until the file is complete and linked."""
    complete = False

    def has_changes() -> bool:
        more = len(cached.done) > sent or (cached.complete and not complete)
        return more or path in linked

    while not (complete and path in linked):
        await cached.until(has_changes)
        if len(cached.done) > sent:
            more, sent = cached.done[sent:], len(cached.done)
            await lines.send({"done": more})
        if cached.complete and not complete:
            complete = True
            await lines.send({"complete": True})
    await lines.send({"linked": True})


async def _refuse(lines: LineReader, code: str, message: str) -> None:
    await lines.send({"error": {"code": code, "message": message}})
