"""The file view: what the node holds as a file system.

`<mount>/trees/<manifest>/…` are the trees, `<mount>/urls/<scheme>/<host>/<path>` what was pulled.
Any program reads it as if on disk, also while the bytes still arrive. A daemon of its own
(`daemon.py`) answers the kernel; this side starts it, and lends it
files (`lent_files.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

from hotplate.cache.catalog.pulls import Pulls
from hotplate.cache.catalog.trees import Trees
from hotplate.cache.catalog.view_place import ViewPlace
from hotplate.cache.file_view import mounting as view_mount
from hotplate.cache.file_view import view_folders
from hotplate.cache.file_view.lent_files import LentFiles
from hotplate.cache.file_view.packet_link import PacketLink
from hotplate.cache.file_view.view_folders import VIEWS, default_mount

log = logging.getLogger(__name__)

_START_S = 30.0
_RESTART_S = 1.0
"""Pause before a new daemon replaces one that was killed."""


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
            link = PacketLink(ours)
            files = LentFiles(self._trees, self._pulls, link)
            try:
                while (message := await link.receive()) is not None:
                    if not self._take(message):
                        files.receive(message)
            finally:
                await files.close()
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
