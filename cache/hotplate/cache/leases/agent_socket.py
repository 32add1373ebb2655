"""A Unix socket of the agent: what may be asked through it, and how much.

One socket is the operator's. Each replica gets one in its own folder, through which it reaches the
trees of its revision only; so the socket itself tells which replica asks, and needs no secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotplate.cache.errors import TooMany
from hotplate.cache.leases.token_bucket import TokenBucket

LINE_BYTES = 64 << 10
"""The longest line that is read. A replica that wants many chunks sends several lines."""

FIRST_LINE_S = 10.0
"""How long a connection may take to send its request."""

LINES_PER_S, LINES_BURST = 1000, 5000
"""For all connections of one socket; a KiB counts as a line, and so does a new connection. A
replica needs one line per chunk of 8 MiB. What exceeds the rate is read later."""

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group at the other end of a Unix socket."""


@dataclass(frozen=True)
class Door:
    """What a socket leads to."""

    manifests: frozenset[str] | None
    """Those whose files may be opened; None for any."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Their digests by the folders at which the socket's user sees them, if those are not ours: a
    pod's paths are not its node's."""
    publish: Callable[[], Awaitable[str]] | None = None
    """Stores what a build has made; the digest of its manifest. Only builds have this."""
    keep: Callable[[], Awaitable[None]] | None = None
    """Keeps what a pod's replica has learnt for later ones."""

    def path_here(self, path: str, trees: Path) -> str:
        """Where a file that its user sees at `path` lies below the trees' folder."""
        for folder, digest in self.folders.items():
            if path.startswith(f"{folder}/"):
                return f"{trees}/{digest}{path[len(folder) :]}"
        return path


class AgentSocket:
    """One listening socket, for its owner only."""

    def __init__(self, path: Path, door: Door, limit: int) -> None:
        """`limit` is of connections."""
        self.path = path
        self.door = door
        self.limit = limit
        self.opened = 0
        self._allowance = TokenBucket(LINES_PER_S, LINES_BURST)
        # A replica may replace anything in its folder by a link, so the folder is opened once.
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._folder = os.open(path.parent, flags)
        try:
            self.listener = self._listen()
            self._inode = self._seen()
        except BaseException:  # also when interrupted: cleaned up, and raised again
            os.close(self._folder)
            raise

    @property
    def there(self) -> bool:
        """Whether its name still leads to it; a replica's folder ends with the replica."""
        return self._folder >= 0 and self._seen() == self._inode

    def lets_in(self, connection: socket.socket) -> bool:
        """Whether the connection is the replica's user's, or the agent's own."""
        size_bytes = _CREDENTIALS.size
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size_bytes)
        _, user, _ = _CREDENTIALS.unpack(found)
        return user in (os.getuid(), os.fstat(self._folder).st_uid)

    def stop(self) -> None:
        """Stops listening; its name stays, for the next run to listen there again."""
        self.listener.close()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def close(self) -> None:
        if self.there:
            with contextlib.suppress(OSError):
                os.unlink(self.path.name, dir_fd=self._folder)
        self.stop()

    def _listen(self) -> socket.socket:
        """Raises OSError, also where something has its name that cannot be removed."""
        name, folder = self.path.name, self._folder
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._make_way()
            os.fchmod(listener.fileno(), 0o600)  # the mode of its name, less the umask
            listener.bind(f"/proc/self/fd/{folder}/{name}")
            owner = os.fstat(folder)
            if owner.st_uid != os.getuid():
                os.chown(name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)
            listener.setblocking(False)
            listener.listen(128)
        except OSError:
            listener.close()
            raise
        return listener

    def _make_way(self) -> None:
        """Removes the socket of an earlier run: by the data folder's lock no other agent listens
        there. Raises OSError for what is neither that nor a link, for that is somebody's file."""
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(self.path.name, dir_fd=self._folder, follow_symlinks=False).st_mode
            if not (stat.S_ISSOCK(found) or stat.S_ISLNK(found)):
                raise FileExistsError(errno.EEXIST, "what has that name is no socket")
            os.unlink(self.path.name, dir_fd=self._folder)

    def _seen(self) -> int:
        """The inode that its name leads to now; 0 if there is none."""
        try:
            return os.stat(self.path.name, dir_fd=self._folder, follow_symlinks=False).st_ino
        except OSError:
            return 0

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Counts a connection. Raises TooMany."""
        self.opened += 1
        try:
            if self.opened > self.limit:
                raise TooMany(
                    f"{self.limit} files are open at {self.path} already, which is its limit; "
                    "close some"
                )
            yield
        finally:
            self.opened -= 1

    async def pace(self, size_bytes: int) -> None:
        """Waits until the rate allows a line of that size."""
        now = asyncio.get_running_loop().time()
        wait_s = self._allowance.wait_s(1 + size_bytes / 1024, now)
        if wait_s:
            await asyncio.sleep(wait_s)


class LineReader:
    """JSON lines over one connection."""

    def __init__(self, connection: socket.socket, agent_socket: AgentSocket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._agent_socket = agent_socket
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()

    async def receive(self) -> dict[str, Any] | None:
        """The next line; None when the other side has closed. Raises ValueError."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > LINE_BYTES:
                raise ValueError(f"a line of more than {LINE_BYTES} bytes")
            data = await self._loop.sock_recv(self._socket, 1 << 16)
            if not data:
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        await self._agent_socket.pace(len(line))
        try:
            value = json.loads(line)
        except RecursionError:
            raise ValueError("a line that nests too deep") from None
        if not isinstance(value, dict):
            raise ValueError("a line that is no JSON object")
        return value

    async def send(self, value: dict[str, Any], fd: int | None = None) -> None:
        data = json.dumps(value).encode() + b"\n"
        if fd is not None:
            # The first bytes on a fresh connection: its buffer has room for some of them.
            data = data[socket.send_fds(self._socket, [data], [fd]) :]
        await self._loop.sock_sendall(self._socket, data)
