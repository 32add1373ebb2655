"""A task's response from its replica until the control plane has it.

A small one stays in memory; a large one, and any that cannot be delivered at once, is a file in the
gateway's folder, which the next gateway of that folder delivers. A file is a line of JSON, and then
the frame as it is sent.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.fleet.membership import is_held
from hotplate.serving.gateway.http1.response_head import REASONS, ResponseHead, error_body
from hotplate.serving.gateway.protocol.frames import framed
from hotplate.serving.gateway.tasks.frame_heads import response_frame_head

MEMORY_BYTES = 256 << 10
"""A larger response goes to the disk as it comes."""
PIECE_BYTES = 256 << 10
DONE = ".answer"
DRAFT = ".draft"
LOCK = "lock"


class TaskResult:
    """One result. `take` and `store` raise OSError of the disk."""

    def __init__(self, folder: Path, task_id: str, gateway: str, note: str = "") -> None:
        self.task_id = task_id
        self.gateway = gateway
        """The gateway to which the task belongs."""
        self.note = note
        """Why there is no response of its handler; empty = there is one."""
        self.size_bytes = 0
        """Bytes of the response's body."""
        self._folder = folder
        self._head: ResponseHead | None = None
        self._buffer = bytearray()
        self._file: BinaryIO | None = None
        self._path: Path | None = None
        self._begins_at = 0
        """Where the frame begins in the file."""
        self._storing: asyncio.Task[None] | None = None

    @classmethod
    def of_error(cls, folder: Path, task_id: str, gateway: str, error: GatewayError) -> TaskResult:
        """The result in place of a handler's response."""
        result = cls(folder, task_id, gateway, error.message)
        body = error_body(error)
        head = b"%d %b\r\nContent-Type: application/json\r\n"
        result._buffer += framed(head % (error.status, REASONS[error.status])) + body
        result.size_bytes = len(body)
        return result

    @classmethod
    def load(cls, path: Path) -> TaskResult:
        """A result that an earlier gateway has left. Raises OSError, ValueError and KeyError."""
        with path.open("rb") as file:
            line = file.readline()
            about = json.loads(line)
        result = cls(path.parent, about["task_id"], about["gateway"], about["note"])
        result._path, result._begins_at = path, len(line)
        result.size_bytes = path.stat().st_size - len(line)
        return result

    async def take(self, head: ResponseHead, piece: bytes) -> None:
        """Takes the response's head, every time, and more of its body."""
        if self._head is None:
            self._head = head
            self._buffer += framed(response_frame_head(head))
        self._buffer += piece
        self.size_bytes += len(piece)
        if len(self._buffer) > MEMORY_BYTES:
            await asyncio.to_thread(self._spill)

    async def store(self) -> None:
        """Stores a whole result: when this returns it is on the disk. If it is cancelled, its
        thread goes on, and the next call waits for that."""
        if self._path is None:
            if self._storing is None or self._storing.done():
                self._storing = asyncio.create_task(asyncio.to_thread(self._store))
            await asyncio.shield(self._storing)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The frame, in pieces."""
        if self._path is None:
            yield bytes(self._buffer)
            return
        file = await asyncio.to_thread(self._path.open, "rb")
        with file:
            file.seek(self._begins_at)
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                yield piece

    @property
    def on_disk(self) -> bool:
        """Whether some of it is in a file, so that it must be stored before it is sent."""
        return self._file is not None

    def drop(self) -> None:
        """Removes a result that is delivered, or not wanted."""
        if self._file is not None:
            self._file.close()
        self._draft.unlink(missing_ok=True)
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    # Inside, in a thread

    @property
    def _draft(self) -> Path:
        return self._folder / f"{self.task_id}{DRAFT}"

    def _spill(self) -> None:
        if self._file is None:
            self._file = self._draft.open("wb")
            about = {"task_id": self.task_id, "gateway": self.gateway, "note": self.note}
            self._begins_at = self._file.write(json.dumps(about).encode() + b"\n")
        self._file.write(self._buffer)
        self._buffer.clear()

    def _store(self) -> None:
        self._spill()
        assert self._file is not None, "it has been opened"
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        path = self._folder / f"{self.task_id}{DONE}"
        self._draft.rename(path)
        self._path = path


class ResultFolder:
    """One gateway's folder for results, beside those of other gateways; a lock says which of them
    live."""

    def __init__(self, folder: Path, gateway: str) -> None:
        self.path = folder / gateway
        self._lock = -1

    def open(self) -> list[Path]:
        """Makes the folder; returns the results of earlier gateways, which are now this one's.
        Raises OSError."""
        self.path.mkdir(parents=True)
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        for other in self.path.parent.iterdir():
            if other != self.path and not is_held(other / LOCK):
                self._inherit(other)
        return sorted(self.path.glob(f"*{DONE}"))

    def close(self) -> None:
        """Leaves the results in it to the next gateway."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            if not list(self.path.glob(f"*{DONE}")):
                shutil.rmtree(self.path, ignore_errors=True)

    def _inherit(self, other: Path) -> None:
        """Takes the results of a gateway that has ended. Another gateway may do so at the same
        time: each file goes to one of the two."""
        for answer in other.glob(f"*{DONE}"):
            with suppress(FileNotFoundError):
                answer.rename(self.path / answer.name)
        shutil.rmtree(other, ignore_errors=True)
