"""Looks through a multipart body, as it passes, for a part that says it is a pickle. Pure.

BentoML reads parts as JSON or files whatever they say; a mounted application might not.
"""

from __future__ import annotations

HEAD_BYTES = 8 << 10
"""A part's header is checked up to this length."""


class PartWatch:
    """Checks each piece of one body; keeps no more than a delimiter or a part's header."""

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
            if end < 0 and len(rest) <= HEAD_BYTES:
                self._rest = rest
                return False
            head = rest[: end if end >= 0 else HEAD_BYTES]
            if says_pickle(head):
                return True
            rest = rest[len(head) :]
            self._in_head = False


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
