"""Looks through a multipart body, as it passes, for a part that says it is a pickle. Pure.

BentoML reads parts as JSON or files whatever they say; a mounted application might not.
"""

from __future__ import annotations

import re

HEAD_BYTES = 8 << 10
"""Of a part's header that goes on for longer, the lines that are complete are not kept."""

_LINE = re.compile(rb"\r\n(?=[^ \t\r])")
"""The end of a header line that is not continued on the next one."""
_FIRST_BYTES, _LAST_BYTES = len(b"content-type"), 16
"""What is kept of a line that is not complete and longer than that: which field it is, and what a
word or the end of the header may begin in."""


class PartWatch:
    """Checks each piece of one body; keeps no more than a delimiter, or `HEAD_BYTES` of a part's
    header."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"--" + boundary
        self._rest = b"\r\n"
        """What may be the beginning of a delimiter, or the header that is being read."""
        self._in_head = False
        self.found = False
        """Whether a part was a pickle."""

    def has_pickle(self, data: bytes) -> bool:
        """Whether a part that is a pickle begins in the body so far."""
        self.found = self.found or self._look(data)
        return self.found

    # Inside

    def _look(self, data: bytes) -> bool:
        rest = self._rest + data
        while True:
            if not self._in_head:
                at = rest.find(self._delimiter)
                if at < 0:
                    keep = len(self._delimiter) - 1
                    self._rest = rest[-keep:] if keep else b""
                    return False
                rest = rest[at + len(self._delimiter) :]
                self._in_head = True
            end = rest.find(b"\r\n\r\n")
            if end < 0:
                if len(rest) <= HEAD_BYTES:
                    self._rest = rest
                    return False
                self._rest = _unfinished(rest)
                return says_pickle(rest)
            if says_pickle(rest[:end]):
                return True
            rest = rest[end:]
            self._in_head = False


def _unfinished(head: bytes) -> bytes:
    """The last line of a header that goes on, without its middle if it is long."""
    line = _LINE.split(head)[-1]
    short = len(line) <= _FIRST_BYTES + _LAST_BYTES
    return line if short else line[:_FIRST_BYTES] + line[-_LAST_BYTES:]


def says_pickle(head: bytes) -> bool:
    """Whether a part's header names a pickle as its content."""
    lines = head.lower().replace(b"\r\n ", b" ").replace(b"\r\n\t", b" ").split(b"\r\n")
    return any(line.startswith(b"content-type") and b"pickle" in line for line in lines)


def watch_of(content_type: bytes) -> PartWatch | None:
    """The check for a body of this content type, as it was written; None = it has no parts."""
    boundary = boundary_of(content_type)
    return PartWatch(boundary) if boundary else None


def boundary_of(content_type: bytes) -> bytes:
    """The boundary that a multipart content type names; empty = none."""
    for parameter in content_type.split(b";")[1:]:
        name, _, value = parameter.strip().partition(b"=")
        if name.strip().lower() == b"boundary":
            return value.strip().strip(b'"')
    return b""
