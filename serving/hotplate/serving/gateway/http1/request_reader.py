"""Reads requests out of a caller's bytes, within limits. No I/O: bytes in, requests out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import httptools

from hotplate.serving.gateway.errors import BadRequest, HeadTooLarge, TargetTooLong
from hotplate.serving.gateway.http1.chunk_reader import ChunkReader
from hotplate.serving.gateway.http1.head_cache import HEAD_END, HeadCache
from hotplate.serving.gateway.http1.request_head import Field, RequestHead, read_request
from hotplate.serving.gateway.limits import Limits

H2C = b"h2c"
"""An offer to speak HTTP/2, which some clients make with every first request; it is passed over."""
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
        "_chunks",
        "_head",
        "_last",
        "_left",
        "_limits",
        "_memo",
        "_over",
        "_parsed",
        "_peer",
        "_proto",
        "_returned",
        "_same",
        "_same_raw",
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
        """`memo` is of heads that have been read already, by whichever reader."""
        self._limits = limits
        self._peer = peer
        self._proto = proto
        self._accept = accept
        self._memo: HeadCache[RequestHead] = HeadCache() if memo is None else memo
        self._caller = b"%b %b\n" % (proto, peer)
        """What a request's meaning depends on besides its head."""
        self._same: RequestHead | None = None
        """What the newest head was read as, if it was known, ..."""
        self._same_raw = b""
        """... and its bytes: callers send one again and again."""
        self._head: HeadReader | None = None
        """None before the first one, after chunks, and while there is nothing to read."""
        self.in_head = False
        """In the middle of a head: some of it has come and more is needed."""
        self._body: Body | None = None
        """In the middle of a body: its taker."""
        self._left = 0
        """Bytes to come of a body whose length is known."""
        self._parsed = False
        """The parser has seen the head and is to see the body; a head that is known it has not."""
        self._chunks: ChunkReader | None = None
        self._tunnel = False
        self._last = False
        """The caller said that it would send nothing after this request ..."""
        self._over = False
        """... and it has come."""
        self._returned = False
        """Before a head: a carriage return has come, its line feed has not."""

    def feed(self, data: bytes) -> None:
        """Reads on. Raises `BadRequest`; after that nothing more can be read."""
        while data and not self._over:
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
        """The request and its body, if the data is one that is known, whole, and nothing else.

        Else nothing has been read of it.
        """
        if self._body is not None or self.in_head or self._over or self._returned:
            return None
        request = self._same
        if request is None or not data.startswith(self._same_raw):
            raw = data[: data.find(HEAD_END) + len(HEAD_END)]
            request = self._memo.get(self._caller + raw)
            if request is None:
                return None
            self._same, self._same_raw = request, raw
        end = len(self._same_raw)
        if len(data) - end != request.content_length or not request.keep_alive:
            return None
        return request, data[end:]

    def rest(self) -> None:
        """Nothing has come for a while: what the next head needs is made anew."""
        if not self.in_head and self._body is None:
            self._head = self._same = None
            self._same_raw = b""

    # Inside: each takes what is its part, and leaves the rest

    def _read_head(self, data: bytes) -> bytes:
        if not self.in_head:
            if self._returned or data[0] in b"\r\n":
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
        if request.chunked or head.offered:
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
        self._last = not request.keep_alive
        self._left = request.content_length
        if request.upgrade:
            self._tunnel = True
            body.end_body(())
        elif not (self._left or request.chunked):
            self._end(body)

    def _skip_blank_lines(self, data: bytes) -> bytes:
        """Some clients send an empty line behind a body (RFC 9112, 2.2)."""
        for at, byte in enumerate(data):
            if byte == CARRIAGE_RETURN and not self._returned:
                self._returned = True
            elif byte == LINE_FEED and self._returned:
                self._returned = False
            elif byte in (CARRIAGE_RETURN, LINE_FEED) or self._returned:
                raise BadRequest("A line before the request does not end in CR LF.")
            else:
                return data[at:]
        return b""

    def _read_length(self, body: Body, data: bytes) -> bytes:
        left = self._left
        piece = data if len(data) <= left else data[:left]
        self._left = left = left - len(piece)
        if self._parsed and self._head is not None:
            self._head.skip(piece)
        body.take_body(piece)
        if not left:
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
        self._over = self._last
        body.end_body(trailers)


class HeadReader:
    """One head at a time: the parser's protocol."""

    __slots__ = (
        "_limits",
        "_parser",
        "_whole",
        "fields",
        "http10",
        "method",
        "offered",
        "raw",
        "target",
    )

    def __init__(self, limits: Limits) -> None:
        self.http10 = False
        self.offered = False
        """Another protocol: the parser stops behind such a head, whatever follows."""
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self.begin()

    def begin(self) -> None:
        """The next head follows."""
        self.method = self.target = self.raw = b""
        self.fields: list[Field] = []
        self._whole = False

    def read(self, data: bytes) -> bytes | None:
        """Reads on: what is left of the data once the head is whole, else None."""
        before = len(self.raw)
        raw = self.raw + data if before else data
        end = raw.find(HEAD_END, max(0, before - 3)) + len(HEAD_END)
        if end < len(HEAD_END):
            self.raw = raw
            self._parse(data)
            self._check_size(raw)
            return None
        if end < len(raw):
            raw, rest = raw[:end], raw[end:]
        else:
            rest = b""
        self.raw = raw
        self._parse(raw[before:] if before else raw)
        if not self._whole:
            raise BadRequest("The request's header has an empty line in it.")
        self._read_line(raw)
        self._check_size(raw)
        if len(self.fields) > self._limits.head_lines:
            raise HeadTooLarge(
                f"The request has {len(self.fields)} header lines, "
                f"{self._limits.head_lines} are accepted; send fewer."
            )
        return rest

    def skip(self, body: bytes) -> None:
        """What the parser takes for the body; it looks at none of it."""
        self._parser.feed_data(body)

    # httptools

    def on_url(self, target: bytes) -> None:
        self.target += target
        if len(self.target) > self._limits.target_bytes:
            raise TargetTooLong(
                f"The request target has more than {self._limits.target_bytes} bytes; shorten it."
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self._whole = True

    # Inside

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.offered = True
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, BadRequest):
                raise error.__context__ from None
            raise
        except httptools.HttpParserError as error:
            raise BadRequest(f"This is not a request in HTTP/1.1: {error}.") from None

    def _read_line(self, raw: bytes) -> None:
        """What the parser lets pass: other protocols that look alike, and more than one space."""
        self.method = self._parser.get_method()
        end = raw.find(b"\r\n")
        version = raw[max(0, end - 9) : end]  # compiled, no slice may end before it begins
        self.http10 = version == b" HTTP/1.0"
        if not self.http10 and version != b" HTTP/1.1":
            said = raw[:end].rpartition(b" ")[2].decode("latin-1")
            raise BadRequest(f"{said} is not spoken here; use HTTP/1.1.")
        if end != len(self.method) + len(self.target) + 10:
            raise BadRequest("The request line has more spaces than two.")

    def _check_size(self, raw: bytes) -> None:
        most = self._limits.head_bytes
        if len(raw) > most and len(raw) - raw.find(b"\r\n") - 2 > most:
            raise HeadTooLarge(f"The request's header has more than {most} bytes; send less.")
