"""Reads a body that comes in chunks, and the trailers after it. No I/O: bytes in, pieces out.

It accepts the form of RFC 9112, 7.1, and nothing that another reader might read differently: lines
end in CR LF, a size has 1 to 16 hex digits, no sign and no space. What follows a size (chunk
extensions) is dropped and limited, since an endless one would cost a caller little.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hotplate.serving.gateway.errors import BadRequest, HeadTooLarge
from hotplate.serving.gateway.http1.fields import Field
from hotplate.serving.gateway.limits import Limits

SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
TRAILER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[\t ]*([\t\x20-\x7e\x80-\xff]*)\r\n")
LINE_BYTES = 4096
"""Limit of one line before a chunk."""
FREE_BYTES = 16
"""A chunk's framing may have this, and twice its data ..."""
EXCESS_BYTES = 16 << 10
"""... and this more in one body (the rule of Go's net/http)."""


class ChunkReader:
    """Reads one body. Its trailers count toward the limits of the header, of which `head_bytes` and
    `head_lines` are used."""

    __slots__ = (
        "_excess",
        "_head_bytes",
        "_head_lines",
        "_limits",
        "_line",
        "_remaining",
        "trailers",
    )

    def __init__(self, limits: Limits, *, head_bytes: int, head_lines: int) -> None:
        self.trailers: list[Field] | None = None
        """None until the last chunk has come."""
        self._limits = limits
        self._head_bytes = head_bytes
        self._head_lines = head_lines
        self._line = b""
        """What has come of a line."""
        self._remaining = 0
        """Bytes to come of a chunk's data and the line end after it; 0 = a line comes next."""
        self._excess = 0

    def read(self, data: bytes, take: Callable[[bytes], None]) -> int:
        """Passes the pieces to `take`. Returns where in `data` the body ended; -1 = it goes on.
        Raises `BadRequest`; after that nothing more can be read."""
        at, end = 0, len(data)
        while at < end:
            remaining = self._remaining
            if not remaining and not self._line and self.trailers is None:
                found = SIZE_LINE.match(data, at)
                if found is not None and found.end() - at <= LINE_BYTES:
                    size = self._begin(found)
                    at = found.end()
                    if size and data[at + size : at + size + 2] == b"\r\n":
                        self._remaining = 0
                        take(data[at : at + size])
                        at += size + 2
                    continue
            if remaining > 2:
                piece = data[at : at + remaining - 2]
                take(piece)
                at += len(piece)
                self._remaining -= len(piece)
            elif remaining:
                if data[at] != b"\n\r"[remaining - 1]:
                    raise BadRequest("A chunk's data does not end where its size says.")
                at += 1
                self._remaining -= 1
            else:
                at, line = self._read_line(data, at)
                if line == b"\r\n" and self.trailers is not None:
                    return at
                if line:
                    self._take_line(line)
        return -1

    def _read_line(self, data: bytes, at: int) -> tuple[int, bytes]:
        """`(where it ended, the line with its end)`; an empty line while it is not complete."""
        end = data.find(b"\n", at) + 1 or len(data)
        line = self._line + data[at:end] if self._line else data[at:end]
        if self.trailers is None:
            if len(line) > LINE_BYTES:
                raise BadRequest(f"A chunk's line has more than {LINE_BYTES} bytes; send less.")
        elif self._head_bytes + len(line) > self._limits.head_bytes:
            raise HeadTooLarge(
                f"The header and the trailers have more than {self._limits.head_bytes} bytes."
            )
        if line.endswith(b"\n"):
            self._line = b""
            return end, line
        self._line = line
        return end, b""

    def _take_line(self, line: bytes) -> None:
        if self.trailers is not None:
            self._take_trailer(line, self.trailers)
            return
        found = SIZE_LINE.fullmatch(line)
        if found is None:
            raise BadRequest(f"{line[:40]!r} is no chunk size; write hex digits and CR LF.")
        self._begin(found)

    def _begin(self, line: re.Match[bytes]) -> int:
        """A chunk begins, or the trailers do; returns its size in bytes."""
        size = int(line[1], 16)
        excess = self._excess + line.end() - line.start() - FREE_BYTES - 2 * size
        if excess > EXCESS_BYTES:
            raise BadRequest("The chunks have more framing than data; send larger chunks.")
        self._excess = excess if excess > 0 else 0
        if size:
            self._remaining = size + 2
        else:
            self.trailers = []
        return size

    def _take_trailer(self, line: bytes, trailers: list[Field]) -> None:
        found = TRAILER.fullmatch(line)
        if found is None:
            raise BadRequest(f"{line[:40]!r} is no trailer; write 'Name: value' and CR LF.")
        trailers.append((found[1], found[2].rstrip(b"\t ")))
        self._head_bytes += len(line)
        if self._head_lines + len(trailers) > self._limits.head_lines:
            raise HeadTooLarge(
                f"The header and the trailers have more than {self._limits.head_lines} lines."
            )
