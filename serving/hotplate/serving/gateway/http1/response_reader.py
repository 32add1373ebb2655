"""Reads the responses of one connection out of its bytes, one at a time. No I/O.

The connection announces a response with `begin`, and feeds what comes. The head and the pieces of
the body go at once to the `Response` that was given; the end is a state and not a call (`ended`),
because the connection can carry the next request before the end of this response is passed on:

    begin ──► feed ──► ended: the connection can carry another request, if `reusable`
                ├────► ended once the connection ends: `ends_with_connection`
                ├────► tunnel: both sides have changed the protocol
                ├────► returned: the request has not begun, and is not served here now
                └────► BadResponse

Interim responses (1xx) are dropped, except for a 100 that says that the request's handler begins,
that it does not, or that it waits again.
Bytes after a whole response belong to no request: they are dropped, and the connection is not used
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import httptools

from hotplate.serving.gateway.http1.fields import Field
from hotplate.serving.gateway.http1.head_cache import HEAD_END, HeadCache
from hotplate.serving.gateway.http1.response_head import ResponseHead, is_interim, read_response

STARTED = b"HTTP/1.1 100 Started\r\n\r\n"
"""From our worker as a handler begins (`replica/inside/handlers.py`), and from a route's owner to
the gateway that passes a request on, as one may begin."""


WAITS = b"HTTP/1.1 100 Waits\r\n\r\n"
"""From a route's owner to that gateway: no handler has begun after all, and the request waits in
its queue again."""


FULL, ELSEWHERE = b"Full", b"Elsewhere"
"""The reasons of a 100 by which our worker says that the handler does not begin."""
WAITING = b"Waits"


class BadResponse(Exception):
    """What came is no response in HTTP/1.1, or none to the request."""


class Response(Protocol):
    """Takes a response as it comes."""

    def started(self) -> None:
        """The handler of the request has begun, or may begin without further notice."""

    def waits(self) -> None:
        """It has not, and waits again."""

    def on_head(self, head: ResponseHead) -> None: ...

    def on_body(self, data: bytes) -> None: ...


class ResponseReader:
    """Reads responses. The parser (llhttp, with no leniency) says where heads and bodies end."""

    __slots__ = (
        "_announces_start",
        "_fields",
        "_first",
        "_heads",
        "_method",
        "_parser",
        "_parsing",
        "_reason",
        "_response",
        "_surplus",
        "_upgrade",
        "_worker",
        "ended",
        "ends_with_connection",
        "head",
        "returned",
        "trailers",
        "tunnel",
    )

    def __init__(
        self,
        *,
        worker: bool = False,
        announces_start: bool = False,
        heads: HeadCache[ResponseHead] | None = None,
    ) -> None:
        """`worker`: our worker responds, and is trusted to say how much of a body is for the
        caller. `announces_start`: the server says by a 100 that the handler begins. `heads`: heads
        of the same server that were read already, by any reader."""
        self._worker = worker
        self._announces_start = announces_start
        self._heads: HeadCache[ResponseHead] = HeadCache() if heads is None else heads
        self._parser = httptools.HttpResponseParser(self)
        self._parsing = False
        """Whether the parser has some of the response; it gets nothing of one with a known head."""
        self._response: Response
        self._method = b""
        self._upgrade = False
        self._first = b""
        """What came of the response first, while that is parsed."""
        self._fields: list[Field] = []
        self._reason = b""
        self._surplus = False
        """Whether something came after the response."""
        self.head: ResponseHead | None = None
        """None until it has come."""
        self.returned = b""
        """Why our worker gives the request back (`FULL`, `ELSEWHERE`); empty = it does not."""
        self.ended = False
        self.trailers: Sequence[Field] = ()
        """The trailers of a response that has ended."""
        self.ends_with_connection = False
        """Whether only the connection's end says where the response ends."""
        self.tunnel: bytes | None = None
        """The first bytes of the new protocol, if the protocol was changed."""

    def begin(self, response: Response, method: bytes, *, upgrade: bool = False) -> None:
        """The next response is to a request of this method, which may have asked to change the
        protocol (`upgrade`)."""
        self._response = response
        self._method = method
        self._upgrade = upgrade
        if self._parsing:
            self._parsing = self.ended = self.ends_with_connection = False
            self.head = None
            self.trailers = ()

    def after_started(self, data: bytes) -> bytes:
        """The data without the 100 at its beginning, if there is one; the response has started
        then. The parser does the same, but takes longer; it also finds a 100 that comes in
        pieces."""
        if self._announces_start and self.head is None and data.startswith(STARTED):
            self._response.started()
            return data[len(STARTED) :]
        return data

    def known(self, data: bytes) -> ResponseHead | None:
        """The head, if the data is exactly one whole response with a known head; the rest of the
        data is its body. Nothing was read or passed on."""
        if self._parsing:
            return None
        heads = self._heads
        head = heads.begins(data)
        if head is None:
            return None
        if len(data) - len(heads.newest_raw) != head.content_length or self._method == b"HEAD":
            return None
        return head

    def feed(self, data: bytes) -> None:
        """Reads on. Raises BadResponse; after that nothing more can be read."""
        if not self._parsing:
            self._parsing = True
            self._first = data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            if self.head is not None and self.head.status == 101:
                self.tunnel = data[error.args[0] :]
            else:
                self._refuse(error)
        except httptools.HttpParserError as error:
            self._refuse(error)
        finally:
            self._first = b""

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request once the response has ended."""
        head = self.head
        return head is not None and head.keep_alive and not self._surplus

    # httptools

    def on_message_begin(self) -> None:
        self._surplus = self.ended
        self._fields = []
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        if self.ended:
            return
        status = self._parser.get_status_code()
        if is_interim(status):
            if status == 100 and self._announces_start:
                if self._worker and self._reason in (FULL, ELSEWHERE):
                    self.returned = self._reason
                elif self._reason == WAITING and not self._worker:
                    self._response.waits()
                else:
                    self._response.started()
            return
        head = read_response(
            status,
            self._reason,
            self._fields,
            keep_alive=self._parser.should_keep_alive(),
            worker=self._worker,
            relayed=self._announces_start and not self._worker,
        )
        self._fields = []  # of trailers, from here on
        if status == 101 and not self._upgrade:
            raise ValueError("an upgrade that was not asked for")
        self.head = head
        self._remember(head)
        self.ends_with_connection = head.ends_with_connection(self._method)
        self._response.on_head(head)
        if self._method == b"HEAD":
            # The parser has no way to expect no body, so another one is needed.
            self.ended = True
            self._parser = httptools.HttpResponseParser(self)

    def on_body(self, data: bytes) -> None:
        if self.head is None:
            raise ValueError("a body behind an interim response")
        if not self.ended:
            self._response.on_body(data)

    def on_message_complete(self) -> None:
        if self.head is not None and not self.ended:
            self.ended = True
            self.trailers = self._fields

    # Inside

    def _refuse(self, error: Exception) -> None:
        if not self.ended:
            raise BadResponse(str(error)) from error
        self._surplus = True

    def _remember(self, head: ResponseHead) -> None:
        """Keeps the head, if it came at once and says where the response ends."""
        raw = self._first[: self._first.find(HEAD_END) + len(HEAD_END)]
        if head.content_length is None or head.chunked or head.bodiless or head.has_request_id:
            return
        # Where an interim response came before it, they are that one's.
        if raw[9:12] == b"%d" % head.status and raw.endswith(HEAD_END):
            self._heads.put(raw, head)
