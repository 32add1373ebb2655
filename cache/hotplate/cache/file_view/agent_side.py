"""The file view: what the node holds as a file system.

`<mount>/trees/<manifest>/…` are the trees, `<mount>/urls/<scheme>/<host>/<path>` what was pulled.
Any program reads it as if on disk, also while the bytes still arrive. A daemon of its own
(`daemon.py`) answers the kernel; this side starts it and sends it files, packet by packet:

    daemon → {"serving": true, "passthrough": bool} once, or {"refused": "<why>"}
    daemon → {"urls": true}
    agent  → {"files": [[url, size, version]], "gone": [url], "last": bool}: the changes
    daemon → {"open": number, "tree": manifest, "path": path}; no tree: the path is a version
    agent  → {"lease": number, "size": n, "complete": bool, "done": [chunks]} + a descriptor
    agent  → {"lease": number, "done": [chunks]} as they are verified
    agent  → {"lease": number, "error": sentence, "code": code} if it cannot be brought
    daemon → {"lease": number, "want": [chunks]}: these first; {"close": number}
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hotplate.cache.catalog.pulls import Pulls
from hotplate.cache.catalog.trees import Trees
from hotplate.cache.catalog.view_place import ViewPlace
from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.errors import CacheError, VersionChanged
from hotplate.cache.file_view import mounting as view_mount
from hotplate.cache.file_view import view_folders
from hotplate.cache.file_view.daemon import PACKET_BYTES
from hotplate.cache.file_view.view_folders import VIEWS, default_mount
from hotplate.cache.origins.locations import Version

log = logging.getLogger(__name__)

_START_S = 30.0
_RESTART_S = 1.0
"""Pause before a new daemon replaces one that was killed."""
_CHUNKS_PER_PACKET = 8192
_URLS_PER_PACKET = 32
"""A packet has room for this many chunk numbers, or for this many of the longest URLs."""


class FileView:
    """The view of this node. Lives on the event loop."""

    def __init__(
        self, trees: Trees, pulls: Pulls, place: ViewPlace, mount: Path | None, data: Path
    ) -> None:
        """`mount` is the folder to mount the view at, None for no view; `data` is the agent's
        folder, which tells its mounts from those of other agents. `place` is set to where the view
        is."""
        self.mount = mount or default_mount(data)
        self._link = data / "view"
        """A link to the mount, so that the agent's folder can be moved and removed like any
        other."""
        self.refusal = "it is not mounted yet" if mount is not None else "nobody asked for it"
        """Why there is none; empty when there is one."""
        self.passthrough = False
        """Whether the kernel reads complete files itself, at the cost of local ones."""
        self._trees = trees
        self._pulls = pulls
        self._source = f"hotplate:{data}"
        self._manifests = data / "manifests"
        self._wanted = mount is not None
        self._settled = asyncio.Event()
        self._place = place
        self._running: asyncio.Task[None] | None = None
        self._held = -1  # a descriptor of the folder, where other agents sweep

    def tree_root(self, digest: str) -> Path | None:
        """The tree's folder in the view, if there is a view."""
        return self._place.tree_root(digest)

    def status(self) -> dict[str, Any]:
        """Where the view is, or why there is none and trees are made of files instead."""
        if self.refusal:
            return {"mount": None, "refusal": self.refusal}
        return {"mount": str(self.mount), "passthrough": self.passthrough}

    async def start(self) -> None:
        """Returns when the view is mounted, or cannot be."""
        if not self._wanted:
            return
        self._running = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(_START_S):
                await self._settled.wait()
        except TimeoutError:
            self.refusal = f"the daemon did not answer in {_START_S:g} s"
        if self.refusal:
            log.warning("no file view at %s: %s", self.mount, self.refusal)

    async def close(self) -> None:
        """Unmounts; every reader gets an error."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if self._held >= 0:
            with contextlib.suppress(OSError):
                self.mount.rmdir()
            self._release()

    async def _run(self) -> None:
        while True:
            try:
                await self._serve()
            except OSError as exc:
                self.refusal = exc.strerror or str(exc)
            finally:
                self._settled.set()
                self._place.mount = None
            if self.refusal:
                return
            self.refusal = "its daemon has ended"
            log.error("the daemon of the file view at %s has ended; another is started", self.mount)
            await asyncio.sleep(_RESTART_S)

    async def _serve(self) -> None:
        """Returns when the daemon has ended. Raises OSError where there cannot be a view."""
        await asyncio.to_thread(self._prepare)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(
                        sys.executable,
                        "-m",
                        "hotplate.cache.file_view.daemon",
                        str(theirs.fileno()),
                    ),
                    *(str(self.mount), str(self._manifests), self._source),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            link = _Link(ours)
            leases = _Leases(self._trees, self._pulls, link)
            try:
                while (message := await link.receive()) is not None:
                    if not self._take(message):
                        leases.receive(message)
            finally:
                await leases.close()
                ours.close()  # which makes the daemon unmount and end
                await asyncio.shield(process.wait())

    def _take(self, message: dict[str, Any]) -> bool:
        """Takes a message about the view as a whole; whether it is one."""
        if "serving" in message:
            self.refusal, self.passthrough = "", message["passthrough"]
            self._place.mount = self.mount
        elif "refused" in message:
            self.refusal = f"it cannot be mounted ({message['refused']})"
        else:
            return False
        self._settled.set()
        return True

    def _prepare(self) -> None:
        """Makes the folder, and removes what killed agents left mounted: of this data folder, and
        of any other whose daemon has died too. Raises OSError."""
        view_mount.unmount(self._source)
        self._release()
        view_folders.sweep()
        for one in view_mount.mounted_at(self.mount):
            raise OSError(0, f"{one.source} is mounted there")
        if self.mount.parent == VIEWS:
            self._held = view_folders.hold(self.mount)
        else:
            self.mount.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # it is mounted right there
            self._link.unlink(missing_ok=True)
            self._link.symlink_to(self.mount)

    def _release(self) -> None:
        """From now on other agents may sweep the folder."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


class _Leases:
    """The files that the daemon has on loan, by its numbers."""

    def __init__(self, trees: Trees, pulls: Pulls, link: _Link) -> None:
        self._trees = trees
        self._pulls = pulls
        self._link = link
        self._shown: dict[str, Version] = {}
        """The files of URLs that the daemon knows of, by their keys."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._sending_urls: asyncio.Task[None] | None = None
        self._lent: dict[int, CachedBlob] = {}

    def receive(self, message: dict[str, Any]) -> None:
        if "open" in message:
            number = message["open"]
            task = asyncio.create_task(self._lend(number, message["tree"], message["path"]))
            self._tasks[number] = task
        elif "want" in message:
            cached = self._lent.get(message["lease"])
            if cached is not None:
                self._trees.blob_table.want(cached, message["want"])
        elif "urls" in message:
            # The daemon waits for the end of this before it asks again.
            self._sending_urls = asyncio.create_task(self._send_urls())
        elif (lent := self._tasks.pop(message["close"], None)) is not None:
            lent.cancel()

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *([self._sending_urls] if self._sending_urls else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _lend(self, number: int, digest: str, path: str) -> None:
        """Lends one file until it is given back, and sends which chunks of it have come."""
        try:
            cached = await self._find(digest, path)
            # The kernel reads a file on disk in larger pages than it gives to memory.
            async with self._trees.blob_table.lend(cached, disk_first=True) as fd:
                self._lent[number] = cached
                await self._send_chunks(number, cached, fd)
                await asyncio.get_running_loop().create_future()
        except CacheError as error:
            await self._link.send({"lease": number, "error": str(error), "code": error.code})
        except OSError as error:  # there are no descriptors, or the daemon is gone
            with contextlib.suppress(OSError):
                await self._link.send({"lease": number, "error": str(error), "code": "os_error"})
        finally:
            self._lent.pop(number, None)

    async def _find(self, digest: str, path: str) -> CachedBlob:
        if digest:
            return await self._trees.borrow(digest, path)
        if path not in self._shown:
            raise VersionChanged(f"version {path} is no longer what was pulled; open it again")
        return self._pulls.bring(self._shown[path])

    async def _send_urls(self) -> None:
        known, self._shown = self._shown, self._located()
        new = [one for key, one in self._shown.items() if key not in known]
        urls = {one.url for one in self._shown.values()}
        gone = [one.url for one in known.values() if one.url not in urls]
        for at in range(0, max(1, len(new), len(gone)), _URLS_PER_PACKET):
            part = slice(at, at + _URLS_PER_PACKET)
            files = [[one.url, one.size_bytes, one.key] for one in new[part]]
            last = part.stop >= max(len(new), len(gone))
            await self._link.send({"files": files, "gone": gone[part], "last": last})

    def _located(self) -> dict[str, Version]:
        return {one.key: one for place in self._pulls.locations() for one in place.versions}

    async def _send_chunks(self, number: int, cached: CachedBlob, fd: int) -> None:
        sent, complete = len(cached.done), cached.complete
        first, *more = _packets([] if complete else cached.done)
        size_bytes = cached.content.size_bytes
        opening = {"lease": number, "size": size_bytes, "complete": complete, "done": first}
        await self._link.send(opening, fd)
        while not complete:
            for done in more:
                await self._link.send({"lease": number, "done": done})
            complete = sent == len(cached.content.chunks)
            if not complete:
                await cached.until_more(sent)
            more, sent = _packets(cached.done[sent:]), len(cached.done)


def _packets(chunks: list[int]) -> list[list[int]]:
    """Cuts the chunks into packets: at least one, which may be empty."""
    starts: Iterable[int] = range(0, max(1, len(chunks)), _CHUNKS_PER_PACKET)
    return [chunks[at : at + _CHUNKS_PER_PACKET] for at in starts]


class _Link:
    """Packets of JSON, each with a descriptor or none."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()

    async def receive(self) -> dict[str, Any] | None:
        """The next packet; None when the other side has gone."""
        try:
            data = await self._loop.sock_recv(self._socket, PACKET_BYTES)
        except ConnectionError:
            return None
        message: dict[str, Any] | None = json.loads(data) if data else None
        return message

    async def send(self, message: dict[str, Any], fd: int | None = None) -> None:
        """Raises OSError when the other side has gone."""
        data = json.dumps(message).encode()
        async with self._sending:
            while True:
                try:
                    socket.send_fds(self._socket, [data], [] if fd is None else [fd])
                    return
                except BlockingIOError:
                    await self._writable()

    async def _writable(self) -> None:
        writable = self._loop.create_future()
        self._loop.add_writer(self._socket, _set, writable)
        try:
            await writable
        finally:
            self._loop.remove_writer(self._socket)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
