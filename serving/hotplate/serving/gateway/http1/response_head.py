"""Response heads: read from a replica, written for a caller; and the gateway's own. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.http1.fields import (
    HOP_BY_HOP,
    USUAL_OPTIONS,
    Field,
    sets_sign_in,
    tokens_of,
    without,
)
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.protocol.headers import ANSWER_BYTES, VERSION_FIELD

REASON = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    408: b"Request Timeout",
    413: b"Content Too Large",
    414: b"URI Too Long",
    415: b"Unsupported Media Type",
    417: b"Expectation Failed",
    421: b"Misdirected Request",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}


Written = tuple[bytes, bytes, bool, bool]
"""A head for a caller, before the request's id and after it; whether the body is sent in chunks;
whether the connection can be kept."""


@dataclass(slots=True)
class ResponseHead:
    """The head of a replica's response as it was read."""

    status: int
    reason: bytes
    keep_alive: bool
    """Whether the replica keeps the connection after it."""
    content_length: int | None
    chunked: bool
    upgrade: bytes
    has_request_id: bool
    lines: list[bytes]
    answer_bytes: int | None = None
    """How much of the body is for the caller, if the body ends later than that."""
    trailer: bytes = b""
    """The announced trailers."""
    names_version: bool = False
    """Whether it says which version of the deployment answers."""
    written: Written | None = field(default=None, compare=False)
    """The usual head, for callers that keep their connection."""

    @property
    def bodiless(self) -> bool:
        """Whether the status says that no body follows."""
        return self.status < 200 or self.status in (204, 304)

    def ends_with_connection(self, method: bytes) -> bool:
        """Whether only the connection's end says where the body ends."""
        if self.bodiless or method == b"HEAD":
            return False
        return self.content_length is None and not self.chunked

    def to_caller(
        self, request: RequestHead, request_id: bytes, *, keep_alive: bool
    ) -> tuple[bytes, bool, bool]:
        """`(head, chunked, keep_alive)`: the head, whether the body is sent in chunks, and whether
        the connection can be kept (it cannot if its end marks the end of the body)."""
        if not keep_alive or request.http10 or request.method == b"HEAD":
            before, after, chunked, keep_alive = self._written(request, keep_alive)
        elif self.written is None:
            before, after, chunked, keep_alive = self.written = self._written(request, keep_alive)
        else:
            before, after, chunked, keep_alive = self.written
        own_id = after if self.has_request_id else request_id + after
        return before + own_id, chunked, keep_alive

    def _written(self, request: RequestHead, keep_alive: bool) -> Written:
        """The same as `to_caller`, with the head in two: before the request's id and after it."""
        lines = [b"HTTP/1.1 %d %b\r\n" % (self.status, self.reason), *self.lines]
        chunked = False
        length = self.content_length if self.answer_bytes is None else self.answer_bytes
        if length is not None and (not self.bodiless or self.status == 304):
            lines.append(b"Content-Length: %d\r\n" % length)
        elif not self.bodiless and request.method != b"HEAD":
            if request.http10:
                keep_alive = False
            else:
                chunked = True
                lines.append(b"Transfer-Encoding: chunked\r\n")
                if self.trailer:
                    lines.append(b"Trailer: %b\r\n" % self.trailer)
        if self.status == 101:
            lines.append(b"Connection: Upgrade\r\nUpgrade: %b\r\n" % self.upgrade)
        elif not keep_alive:
            lines.append(b"Connection: close\r\n")
        elif request.http10:
            lines.append(b"Connection: keep-alive\r\n")
        if self.has_request_id:
            return b"".join(lines), b"\r\n", chunked, keep_alive
        lines.append(b"X-Request-Id: ")
        return b"".join(lines), b"\r\n\r\n", chunked, keep_alive


def with_line(head: bytes, line: bytes) -> bytes:
    """A written head with one more line, which is whole."""
    return head[:-2] + line + b"\r\n"


def is_interim(status: int) -> bool:
    """Whether another head follows. Raises ValueError if it is no status."""
    if status < 100:
        raise ValueError(f"status {status}")
    return status < 200 and status != 101


def read_response(
    status: int,
    reason: bytes,
    fields: Sequence[Field],
    *,
    keep_alive: bool,
    worker: bool,
    relayed: bool = False,
) -> ResponseHead:
    """Reads the head of a replica's response; `keep_alive` is the parser's result. Only our
    `worker` is trusted to say how much of its body is for the caller, and only another gateway that
    has `relayed` it, which version has answered."""
    known: dict[bytes, bytes] = {}
    lines: list[bytes] = []
    has_request_id = names_version = False
    for name, value in fields:
        key = name.lower()
        if key in HOP_BY_HOP or key in (b"content-length", ANSWER_BYTES):
            known[key] = known[key] + b", " + value if key in known else value
            continue
        if key == VERSION_FIELD:
            if not relayed:
                continue
            names_version = True
        if key == b"x-request-id":
            has_request_id = True
        elif key == b"set-cookie" and sets_sign_in(value):
            continue
        lines.append(b"%b: %b\r\n" % (name, value))
    connection = tokens_of(known.get(b"connection", b""))
    if connection - USUAL_OPTIONS:
        lines = without(lines, connection)
    length, answer_bytes = known.get(b"content-length"), known.get(ANSWER_BYTES)
    return ResponseHead(
        status=status,
        reason=reason if reason == b"OK" or REASON.fullmatch(reason) else b"",
        keep_alive=keep_alive,
        content_length=None if length is None else int(length),
        chunked=b"transfer-encoding" in known,
        upgrade=known.get(b"upgrade", b""),
        has_request_id=has_request_id,
        lines=lines,
        answer_bytes=int(answer_bytes) if worker and answer_bytes is not None else None,
        trailer=known.get(b"trailer", b""),
        names_version=names_version,
    )


def error_body(error: GatewayError) -> bytes:
    """The JSON body of every error."""
    return json.dumps({"error": {"code": error.code, "message": error.message}}).encode()


def own_response(
    status: int,
    body: bytes,
    *,
    method: bytes = b"GET",
    keep_alive: bool,
    http10: bool = False,
    request_id: bytes = b"",
    retry_after_s: float | None = None,
    more: bytes = b"",
) -> bytes:
    """A whole response of the gateway's own, in JSON; `more` are further header lines."""
    lines = [
        b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        % (status, REASONS[status], len(body)),
        more,
    ]
    if request_id:
        lines.append(b"X-Request-Id: %b\r\n" % request_id)
    if retry_after_s is not None:
        lines.append(b"Retry-After: %d\r\n" % max(1, math.ceil(retry_after_s)))
    if status == 401:
        lines.append(b"WWW-Authenticate: Bearer\r\n")
    if not keep_alive:
        lines.append(b"Connection: close\r\n")
    elif http10:
        lines.append(b"Connection: keep-alive\r\n")
    lines.append(b"\r\n")
    if method != b"HEAD":
        lines.append(body)
    return b"".join(lines)
