"""Reads requests out of a caller's bytes, within limits. No I/O: bytes in, requests out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hotplate.serving.gateway.errors import BadRequest
from hotplate.serving.gateway.http1.chunk_reader import ChunkReader
from hotplate.serving.gateway.http1.fields import Field
from hotplate.serving.gateway.http1.head_cache import HEAD_END, HeadCache
from hotplate.serving.gateway.http1.head_reader import HeadReader
from hotplate.serving.gateway.http1.request_head import RequestHead, read_request
from hotplate.serving.gateway.limits import Limits

H2C = b"h2c"
"""An offer of HTTP/2, which some clients make with every first request; it is ignored."""
CARRIAGE_RETURN, LINE_FEED = b"\r\n"


class Body(Protocol):
    """Takes what follows a request's head."""

    def take_body(self, data: bytes) -> None: ...
    def end_body(self, trailers: Sequence[Field]) -> None: ...
    def take_tunnel(self, data: bytes) -> None: ...


class RequestReader:
    """Calls `accept` with every head, and gives what follows it to the body that came back.

    Where a head and a body end is decided here, by what `read_request` makes of the head. The
    parser (llhttp, with no leniency) reads heads, and refuses folded lines, bare line feeds, both
    lengths, several lengths and spaces before a colon.
    """

    __slots__ = (
        "_accept",
        "_body",
        "_caller",
        "_carriage_return_seen",
        "_chunks",
        "_head",
        "_is_last",
        "_is_over",
        "_limits",
        "_memo",
        "_newest",
        "_newest_raw",
        "_parsed",
        "_peer",
        "_proto",
        "_remaining",
        "_tunnel",
        "in_head",
    )

    def __init__(
        self,
        limits: Limits,
        *,
        peer: bytes,
        proto: bytes = b"http",
        accept: Callable[[RequestHead], Body],
        memo: HeadCache[RequestHead] | None = None,
    ) -> None:
        """`memo` has heads that were read already, by any reader."""
        self._limits = limits
        self._peer = peer
        self._proto = proto
        self._accept = accept
        self._memo: HeadCache[RequestHead] = HeadCache() if memo is None else memo
        self._caller = b"%b %b\n" % (proto, peer)
        """What the meaning of a request depends on besides its head."""
        self._newest: RequestHead | None = None
        """The newest head that was known ..."""
        self._newest_raw = b""
        """... and its bytes: callers send the same head again and again."""
        self._head: HeadReader | None = None
        """None before the first one, after chunks, and while there is nothing to read."""
        self.in_head = False
        """Whether some of a head has come and more is needed."""
        self._body: Body | None = None
        """What takes the body that is being read; None = a head comes next."""
        self._remaining = 0
        """Bytes to come of a body of known length."""
        self._parsed = False
        """Whether the parser has seen the head and has to see the body; it does not see known
        heads."""
        self._chunks: ChunkReader | None = None
        self._tunnel = False
        self._is_last = False
        """The caller said that it would send nothing after this request ..."""
        self._is_over = False
        """... and the request is complete."""
        self._carriage_return_seen = False
        """Before a head: a carriage return has come and its line feed has not."""

    def feed(self, data: bytes) -> None:
        """Reads on. Raises `BadRequest`; after that nothing more can be read."""
        while data and not self._is_over:
            body = self._body
            if body is None:
                data = self._read_head(data)
            elif self._tunnel:
                body.take_tunnel(data)
                return
            elif self._chunks is not None:
                data = self._read_chunks(body, self._chunks, data)
            else:
                data = self._read_length(body, data)

    def known(self, data: bytes) -> tuple[RequestHead, bytes] | None:
        """The request and its body, if the data is exactly one whole request with a known head.
        Otherwise nothing was read."""
        if self._body is not None or self.in_head or self._is_over or self._carriage_return_seen:
            return None
        request = self._newest
        if request is None or not data.startswith(self._newest_raw):
            raw = data[: data.find(HEAD_END) + len(HEAD_END)]
            request = self._memo.get(self._caller + raw)
            if request is None:
                return None
            self._newest, self._newest_raw = request, raw
        end = len(self._newest_raw)
        if len(data) - end != request.content_length or not request.keep_alive:
            return None
        return request, data[end:]

    def drop_parser(self) -> None:
        """Drops the parser after a pause; the next head gets a new one."""
        if not self.in_head and self._body is None:
            self._head = self._newest = None
            self._newest_raw = b""

    # Inside: each takes what is its part, and leaves the rest

    def _read_head(self, data: bytes) -> bytes:
        if not self.in_head:
            if self._carriage_return_seen or data[0] in b"\r\n":
                data = self._skip_blank_lines(data)
                if not data:
                    return b""
            end = data.find(HEAD_END) + len(HEAD_END)
            known = self._memo.get(self._caller + data[:end])
            if known is not None:
                self._begin(known, parsed=False)
                return data[end:]
            if self._head is None:
                self._head = HeadReader(self._limits)
            self._head.begin()
        head = self._head
        assert head is not None
        rest = head.read(data)
        if rest is None:
            self.in_head = True
            return b""
        self.in_head = False
        request = read_request(
            head.method,
            head.target,
            head.fields,
            http10=head.http10,
            peer=self._peer,
            proto=self._proto,
        )
        if request.upgrade == H2C:
            request.upgrade = b""
        elif request.upgrade and request.has_body:
            raise BadRequest("A request to change the protocol has a body; send it without.")
        if request.chunked or head.offers_upgrade:
            self._head = None  # its parser does not see what follows, or stopped here
        elif request.repeats:
            self._memo.put(self._caller + head.raw, request)
        if request.chunked:
            self._chunks = ChunkReader(
                self._limits, head_bytes=len(head.raw), head_lines=len(head.fields)
            )
        self._begin(request, parsed=True)
        return rest

    def _begin(self, request: RequestHead, *, parsed: bool) -> None:
        body = self._body = self._accept(request)
        self._parsed = parsed
        self._is_last = not request.keep_alive
        self._remaining = request.content_length
        if request.upgrade:
            self._tunnel = True
            body.end_body(())
        elif not (self._remaining or request.chunked):
            self._end(body)

    def _skip_blank_lines(self, data: bytes) -> bytes:
        """Skips empty lines, which some clients send after a body (RFC 9112, 2.2)."""
        for at, byte in enumerate(data):
            if byte == CARRIAGE_RETURN and not self._carriage_return_seen:
                self._carriage_return_seen = True
            elif byte == LINE_FEED and self._carriage_return_seen:
                self._carriage_return_seen = False
            elif byte in (CARRIAGE_RETURN, LINE_FEED) or self._carriage_return_seen:
                raise BadRequest("A line before the request does not end in CR LF.")
            else:
                return data[at:]
        return b""

    def _read_length(self, body: Body, data: bytes) -> bytes:
        remaining = self._remaining
        piece = data if len(data) <= remaining else data[:remaining]
        self._remaining = remaining = remaining - len(piece)
        if self._parsed and self._head is not None:
            self._head.skip(piece)
        body.take_body(piece)
        if not remaining:
            self._end(body)
        return data[len(piece) :]

    def _read_chunks(self, body: Body, chunks: ChunkReader, data: bytes) -> bytes:
        end = chunks.read(data, body.take_body)
        if end < 0:
            return b""
        self._end(body, chunks.trailers or ())
        return data[end:]

    def _end(self, body: Body, trailers: Sequence[Field] = ()) -> None:
        self._body = self._chunks = None
        self._is_over = self._is_last
        body.end_body(trailers)
