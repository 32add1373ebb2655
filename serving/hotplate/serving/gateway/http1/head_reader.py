"""Reads one request head at a time out of a caller's bytes. No I/O.

The parser (llhttp, with no leniency) refuses folded lines, bare line feeds, both lengths, several
lengths and spaces before a colon.
"""

from __future__ import annotations

import httptools

from hotplate.serving.gateway.errors import BadRequest, HeadTooLarge, TargetTooLong
from hotplate.serving.gateway.http1.fields import Field
from hotplate.serving.gateway.http1.head_cache import HEAD_END
from hotplate.serving.gateway.limits import Limits


class HeadReader:
    """Reads one head at a time; implements the parser's protocol."""

    __slots__ = (
        "_limits",
        "_parser",
        "_whole",
        "fields",
        "http10",
        "method",
        "offers_upgrade",
        "raw",
        "target",
    )

    def __init__(self, limits: Limits) -> None:
        self.http10 = False
        self.offers_upgrade = False
        """Whether the head offers another protocol; the parser stops after such a head."""
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self.begin()

    def begin(self) -> None:
        """The next head follows."""
        self.method = self.target = self.raw = b""
        self.fields: list[Field] = []
        self._whole = False

    def read(self, data: bytes) -> bytes | None:
        """Reads on. Returns the rest of the data once the head is complete, else None."""
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
        """Passes the body to the parser, which does not look at it."""
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
            self.offers_upgrade = True
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, BadRequest):
                raise error.__context__ from None
            raise
        except httptools.HttpParserError as error:
            raise BadRequest(f"This is not a request in HTTP/1.1: {error}.") from None

    def _read_line(self, raw: bytes) -> None:
        """Refuses what the parser accepts: similar protocols, and more spaces than two."""
        self.method = self._parser.get_method()
        end = raw.find(b"\r\n")
        version = raw[max(0, end - 9) : end]  # compiled, no slice may end before it begins
        self.http10 = version == b" HTTP/1.0"
        if not self.http10 and version != b" HTTP/1.1":
            version_text = raw[:end].rpartition(b" ")[2].decode("latin-1")
            raise BadRequest(f"{version_text} is not spoken here; use HTTP/1.1.")
        if end != len(self.method) + len(self.target) + 10:
            raise BadRequest("The request line has more spaces than two.")

    def _check_size(self, raw: bytes) -> None:
        most = self._limits.head_bytes
        if len(raw) > most and len(raw) - raw.find(b"\r\n") - 2 > most:
            raise HeadTooLarge(f"The request's header has more than {most} bytes; send less.")
