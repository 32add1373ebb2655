"""What goes into a task and what comes out of it: small in the task's row, else as a blob part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.parts import PartWriter
from hotplate.platform.store.records import TaskContent

T = TypeVar("T")

ROW_BYTES = 64 << 10
"""A larger body is not for a database."""
PIECE_BYTES = 1 << 20
INPUT_PART = 1

Read = Callable[[], Awaitable[bytes]]
"""The next piece; empty at the end."""


class TaskContents:
    """Bodies of tasks. Raises what the blob store does."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    async def take(self, task_id: str, part: int, head: bytes, read: Read) -> TaskContent:
        """Keeps a body that comes in pieces; when this returns, a large one is on the disk.

        What `read` raises is raised, and then nothing is kept.
        """
        first = bytearray()
        while piece := await read():
            first += piece
            if len(first) > ROW_BYTES:
                size_bytes = await self._take_part(task_id, part, first, read)
                return TaskContent(head, None, size_bytes, part)
        return TaskContent(head, bytes(first), len(first))

    async def pieces(self, task_id: str, content: TaskContent) -> AsyncIterator[bytes]:
        """The body of a content."""
        if content.body is not None:
            yield content.body
            return
        parts = self._blobs.read_parts(folder_of(task_id), [content.part])
        while piece := await asyncio.to_thread(next, parts, b""):
            yield piece

    async def copy(self, source: str, target: str, content: TaskContent) -> TaskContent:
        """The content of one task for another."""
        if content.body is not None:
            return content
        pieces = self.pieces(source, content)

        async def read() -> bytes:
            return await anext(pieces, b"")

        return await self.take(target, content.part, content.head, read)

    async def drop(self, task_ids: Sequence[str]) -> None:
        for task_id in task_ids:
            await asyncio.to_thread(self._blobs.drop_parts, folder_of(task_id))

    async def _take_part(self, task_id: str, part: int, first: bytearray, read: Read) -> int:
        size_bytes, piece = 0, first
        opening = asyncio.to_thread(self._blobs.part_writer, folder_of(task_id), part)
        with await _finished(opening, undo=PartWriter.discard) as writer:
            while True:
                while len(piece) < PIECE_BYTES and (more := await read()):
                    piece += more
                if not piece:
                    break
                await _finished(asyncio.to_thread(writer.write, bytes(piece)))
                size_bytes += len(piece)
                piece = bytearray()
            await _finished(asyncio.to_thread(writer.commit))
        return size_bytes


async def _finished(work: Awaitable[T], undo: Callable[[T], object] | None = None) -> T:
    """What a thread does. It cannot be cancelled, so who is cancelled waits for it: nothing may be
    undone while it is being done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if undo is not None and task.exception() is None:
            undo(task.result())
        raise


def folder_of(task_id: str) -> str:
    """The upload id under which the blob store keeps a task's parts."""
    return f"task-{task_id}"
