"""Frames: how a request or a response of a kept task travels between gateway and control plane.

How long the head is (4 bytes), the head, and then the body until the message's end. The head is
HTTP's own lines, so that a task's handler sees what an ordinary call would have shown it, and the
caller that fetches the result gets the handler's own response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

HEAD_BYTES = 256 << 10
"""The limit of a frame's head; a request's own head is limited to 64 KiB."""
LENGTH_BYTES = 4


def framed(head: bytes) -> bytes:
    """The beginning of a frame."""
    return len(head).to_bytes(LENGTH_BYTES, "big") + head


async def frame_head(read_exactly: Callable[[int], Awaitable[bytes]]) -> bytes:
    """Reads the head of a frame. Raises ValueError if it is too long, and what `read_exactly`
    raises."""
    length = int.from_bytes(await read_exactly(LENGTH_BYTES), "big")
    if length > HEAD_BYTES:
        raise ValueError(f"a frame's head of {length} bytes; {HEAD_BYTES} are taken")
    return await read_exactly(length)
