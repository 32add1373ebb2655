"""Reads requests out of a caller's bytes, within limits. No I/O: bytes in, requests out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import httptools

from hotplate.serving.gateway.errors import BadRequest, HeadTooLarge, TargetTooLong
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.request_head import Field, RequestHead, read_request

H2C = b"h2c"
"""An offer to speak HTTP/2, which some clients make with every first request; it is passed over."""


class Body(Protocol):
    """Takes what follows a request's head."""

    def take_body(self, data: bytes) -> None: ...
    def end_body(self) -> None: ...
    def take_tunnel(self, data: bytes) -> None: ...


class RequestReader:
    """Calls `accept` with every head, and gives what follows it to the body that came back.

    The parser (llhttp, with no leniency) refuses both lengths at once, several lengths, folded
    lines, bare line feeds and spaces before a colon; the rest is refused by `read_request`.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        peer: bytes,
        new_id: Callable[[], bytes],
        accept: Callable[[RequestHead], Body],
    ) -> None:
        self.in_head = False
        """In the middle of a head: some of it has come and more is needed."""
        self._limits = limits
        self._peer = peer
        self._new_id = new_id
        self._accept = accept
        self._parser = httptools.HttpRequestParser(self)
        self._body: Body | None = None
        self._done = True
        """The last request has come whole."""
        self._last = False
        """The caller said that it would send nothing after it."""
        self._offer: RequestHead | None = None
        """A request that offers another protocol; the parser stops after it."""
        self._tunnel = False
        self._fields: list[Field] = []
        self._target = b""
        self._head_bytes = 0
        self._large = False
        """Enough has come for a head over the limit."""

    def feed(self, data: bytes) -> None:
        """Reads on. Raises `BadRequest`; after that nothing more can be read."""
        if self._tunnel:
            assert self._body is not None
            self._body.take_tunnel(data)
            return
        fields, in_head = self._fields, self.in_head
        self._large = self._head_bytes + len(data) > self._limits.head_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._change_protocol(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, BadRequest):
                raise error.__context__ from None
            raise
        except httptools.HttpParserError as error:
            if not (self._done and self._last):
                raise BadRequest(f"This is not a request in HTTP/1.1: {error}.") from None
        if self.in_head and in_head and self._fields is fields:
            # The head is checked when it is whole, and it might never be.
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_bytes:
                raise self._head_too_large()

    # httptools

    def on_message_begin(self) -> None:
        self._fields = []
        self._target = b""
        self.in_head = True
        self._head_bytes = 0

    def on_url(self, target: bytes) -> None:
        self._target += target
        if len(self._target) > self._limits.target_bytes:
            raise TargetTooLong(
                f"The request target has more than {self._limits.target_bytes} bytes; shorten it."
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # and not a trailer, which is dropped
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        self.in_head = False
        self._check_size()
        request = read_request(
            parser.get_method(),
            self._target,
            parser.get_http_version(),
            self._fields,
            peer=self._peer,
            new_id=self._new_id(),
        )
        if request.upgrade:
            self._consider(request)
        self._done = False
        self._last = not request.keep_alive
        self._body = self._accept(request)

    def on_body(self, data: bytes) -> None:
        if self._body is not None and not self._done:
            self._body.take_body(data)

    def on_message_complete(self) -> None:
        # After an offer the parser says so too, although a body may follow.
        if self._body is not None and not self._done and self._offer is None:
            self._done = True
            self._body.end_body()

    # Inside

    def _check_size(self) -> None:
        fields, limits = self._fields, self._limits
        if len(fields) > limits.head_lines:
            raise HeadTooLarge(
                f"The request has {len(fields)} header lines, "
                f"{limits.head_lines} are accepted; send fewer."
            )
        if self._large and sum(len(n) + len(v) + 4 for n, v in fields) > limits.head_bytes:
            raise self._head_too_large()

    def _consider(self, request: RequestHead) -> None:
        """Another protocol is offered: tunnel it later, or pass the offer over."""
        self._offer = request
        if request.upgrade == H2C:
            request.upgrade = b""
            request.keep_alive = request.keep_alive and not request.has_body
        elif request.has_body:
            raise BadRequest("A request to change the protocol has a body; send it without.")

    def _change_protocol(self, rest: bytes) -> None:
        """The parser has stopped after an offer. What follows is the other protocol's, or, where
        the offer was passed over, this request's body, which a new parser has to read."""
        offer, self._offer = self._offer, None
        assert offer is not None and self._body is not None
        if offer.upgrade:
            self._tunnel = self._done = True
            self._body.end_body()
            if rest:
                self._body.take_tunnel(rest)
            return
        if offer.has_body:
            self._parser = httptools.HttpRequestParser(_BodyOnly(self))
            self._parser.feed_data(_framing(offer))
        else:
            self._parser = httptools.HttpRequestParser(self)
            self.on_message_complete()
        if rest:
            self.feed(rest)

    def _head_too_large(self) -> HeadTooLarge:
        return HeadTooLarge(
            f"The request's header has more than {self._limits.head_bytes} bytes; send less."
        )


class _BodyOnly:
    """Has a parser read the body of a request whose head is known, and nothing after it."""

    def __init__(self, reader: RequestReader) -> None:
        self.on_body = reader.on_body
        self.on_message_complete = reader.on_message_complete


def _framing(request: RequestHead) -> bytes:
    if request.chunked:
        return b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    return b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % request.content_length
