"""Request heads: read from a parser's fields, written for a replica. Pure.

Fields of one connection are removed (`fields.py`), and the framing of the body is written anew, so
that the two sides can never disagree on where a message ends. The rest is passed on as it came.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hotplate.serving.gateway.errors import (
    BadRequest,
    ExpectationRefused,
    MethodRefused,
    UnknownCoding,
)
from hotplate.serving.gateway.http1.fields import (
    NOT_PASSED_ON,
    SIGN_IN,
    USUAL_OPTIONS,
    Field,
    tokens_of,
    without,
    without_sign_in,
)
from hotplate.serving.gateway.protocol.headers import DUE, PASSED, SECRET

WEBSOCKET = b"websocket"
PRIORITY, TIMEOUT = b"priority", b"x-request-timeout-seconds"
ORIGIN, SITE = b"origin", b"sec-fetch-site"
"""What browsers say about the page that sends a request; programs send neither."""
LOOKED_AT = NOT_PASSED_ON | {b"authorization", b"content-type", PRIORITY, TIMEOUT, ORIGIN, SITE}
REQUEST_ID_BYTES = 200
TRACE_PARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)
"""W3C trace context, 3.2."""
HOST = re.compile(rb"[A-Za-z0-9\-._~%!$&'()*+;=:\[\]]*")
"""Host and port (RFC 3986, 3.2.2), or empty; without a comma, which could join two."""
ABSOLUTE = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([A-Za-z0-9\-._~%!$&'()*+;=:\[\]]+)((?:[/?].*)?)")


class Memo:
    """What another layer has found out about a head, for its next request."""

    __slots__ = ()


@dataclass(slots=True)
class RequestHead:
    """A request's head as it was read, shared by all requests with the same head; `to_replica`
    writes the head for a replica."""

    method: bytes
    target: bytes
    """In origin form: path and query."""
    path: bytes
    http10: bool
    keep_alive: bool
    content_length: int
    """Bytes of the body; 0 when there is none or it is chunked."""
    chunked: bool
    expects_continue: bool
    upgrade: bytes
    """The protocol to change to, in lower case; empty = none."""
    authorization: bytes
    content_type: bytes
    priority: bytes
    """RFC 9218's field; empty = none."""
    timeout: bytes
    """X-Request-Timeout-Seconds; empty = none."""
    origin: bytes
    """The page that sends it; empty = no page, or the browser does not say."""
    site: bytes
    """Sec-Fetch-Site; the same."""
    given_id: bytes
    """The caller's own request id; empty = none."""
    host: bytes
    forwarded: tuple[bytes, bytes, bytes]
    """X-Forwarded-For, -Proto and -Host for the replica."""
    peer: bytes
    """The caller's address; empty = another gateway passes the request on."""
    lines: list[bytes]
    """The lines that are passed on as they came."""
    repeats: bool
    """Whether nothing in it belongs to this one request, so that the same head may come again."""
    secret: bytes = b""
    """The secret by which a service proves its revision; empty = none."""
    due_in_s: float = math.inf
    """In how many seconds its response was due as it came, if another gateway has determined
    that."""
    passed: bytes = b""
    """By what another gateway, which passes it on, can have it back; empty = by nothing."""
    memo: Memo | None = field(default=None, compare=False)
    written: tuple[bytes, bytes] | None = field(default=None, compare=False)
    """The usual head for a replica: before the request's id and after it."""

    @property
    def has_body(self) -> bool:
        return self.chunked or self.content_length > 0

    def value(self, name: bytes) -> bytes:
        """The value of the first field with this name (lower case) that is passed on; empty = none.
        It searches all lines, which is too slow for every request."""
        for line in self.lines:
            found, _, value = line.partition(b":")
            if found.lower() == name:
                return value.strip()
        return b""

    def to_replica(
        self,
        default_host: bytes,
        request_id: bytes,
        *,
        with_authorization: bool,
        prefix: bytes = b"",
    ) -> bytes:
        """The head to send, with its empty line; `default_host` for callers that named none,
        `prefix` goes before the target."""
        if prefix or not self.host or (self.authorization and not with_authorization):
            return request_id.join(self._written(default_host, with_authorization, prefix))
        written = self.written
        if written is None:
            written = self.written = self._written(default_host, with_authorization, prefix)
        return request_id.join(written)

    def _written(
        self, default_host: bytes, with_authorization: bool, prefix: bytes
    ) -> tuple[bytes, bytes]:
        """The head before the request's id and after it."""
        lines = self.lines
        if self.authorization and not with_authorization:
            lines = [line for line in lines if line[:14].lower() != b"authorization:"]
        source, proto, host = self.forwarded
        before = [
            b"%b %b%b HTTP/1.1\r\nHost: %b\r\n"
            % (self.method, prefix, self.target, self.host or default_host),
            *lines,
            b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\nX-Forwarded-Host: %b\r\n"
            b"X-Request-Id: " % (source, proto, host or default_host),
        ]
        after = b"\r\n"
        if self.chunked:
            after += b"Transfer-Encoding: chunked\r\n"
        elif self.content_length or self.method in (b"POST", b"PUT", b"PATCH"):
            after += b"Content-Length: %d\r\n" % self.content_length
        if self.upgrade:
            after += b"Connection: Upgrade\r\nUpgrade: %b\r\n" % self.upgrade
        return b"".join(before), after + b"\r\n"


def read_request(
    method: bytes,
    target: bytes,
    fields: Sequence[Field],
    *,
    http10: bool,
    peer: bytes,
    proto: bytes,
) -> RequestHead:
    """Reads a request's head; `peer` is the caller's address, `proto` (http or https) its protocol.
    With an empty `peer` another gateway passes the request on and has added the caller's address.
    Raises `BadRequest` and its subclasses for what replicas might read differently. The reader has
    refused both lengths at once, several lengths, folded lines and bare line feeds already."""
    if method == b"CONNECT":
        raise MethodRefused("CONNECT is not served; send requests to the deployment itself.")
    known, lines = _sort(fields)
    connection = tokens_of(known.get(b"connection", b""))
    if connection - USUAL_OPTIONS:
        lines = without(lines, connection)
    host, target = _origin_form(method, known.get(b"host"), target, http10)
    chunked = _chunked(known.get(b"transfer-encoding"), http10)
    upgrade = known.get(b"upgrade", b"").lower() if b"upgrade" in connection else b""
    if b"te" in known and not http10 and not upgrade and _takes_trailers(known[b"te"]):
        lines.append(b"TE: trailers\r\nConnection: TE\r\n")
    if chunked and b"trailer" in known:
        lines.append(b"Trailer: %b\r\n" % known[b"trailer"])
    if b"traceparent" in known:
        lines += _trace(known)
    given_id = known.get(b"x-request-id", b"")
    earlier = known.get(b"x-forwarded-for")
    return RequestHead(
        method=method,
        target=target,
        path=target.partition(b"?")[0],
        http10=http10,
        keep_alive=b"keep-alive" in connection if http10 else b"close" not in connection,
        content_length=int(known.get(b"content-length", b"0")),
        chunked=chunked,
        expects_continue=not http10 and _expects_continue(known.get(b"expect")),
        upgrade=upgrade,
        authorization=known.get(b"authorization", b""),
        content_type=known.get(b"content-type", b"").lower(),
        priority=known.get(PRIORITY, b""),
        timeout=known.get(TIMEOUT, b""),
        origin=known.get(ORIGIN, b""),
        site=known.get(SITE, b""),
        given_id=given_id if len(given_id) <= REQUEST_ID_BYTES else b"",
        host=host,
        forwarded=(
            _forwarded_for(earlier, peer),
            known.get(b"x-forwarded-proto", proto),
            known.get(b"x-forwarded-host", host),
        ),
        peer=peer,
        lines=lines,
        repeats=not (given_id or upgrade or b"traceparent" in known or DUE in known),
        secret=known.get(SECRET, b""),
        due_in_s=float(known[DUE]) if DUE in known and not peer else math.inf,
        passed=b"" if peer else known.get(PASSED, b""),
    )


def for_owner(head: bytes, secret: bytes, due_in_s: float, passed: bytes) -> bytes:
    """The head for the gateway that owns the route."""
    secret_line = b"%b: %b\r\n" % (SECRET, secret) if secret else b""
    due_line = b"%b: %.3f\r\n" % (DUE, due_in_s) if due_in_s < math.inf else b""
    passed_line = b"%b: %b\r\n" % (PASSED, passed) if passed else b""
    return b"%b%b%b%b\r\n" % (head[:-2], secret_line, due_line, passed_line)


def _forwarded_for(earlier: bytes | None, peer: bytes) -> bytes:
    if earlier is None or not peer:
        return earlier or peer
    return earlier + b", " + peer


def _sort(fields: Sequence[Field]) -> tuple[dict[bytes, bytes], list[bytes]]:
    """The fields that the gateway reads (repeated ones joined), and the lines to pass on."""
    known: dict[bytes, bytes] = {}
    lines: list[bytes] = []
    for name, value in fields:
        key = name.lower()
        if key in LOOKED_AT:
            if key in known:
                if key == b"host":
                    raise BadRequest("Host is given twice; send it once.")
                if key not in NOT_PASSED_ON and key != PRIORITY:
                    raise BadRequest(f"{key.decode()} is given twice; send it once.")
                known[key] += b", " + value
            else:
                known[key] = value
            if key in NOT_PASSED_ON:
                continue
        elif key == b"cookie" and SIGN_IN in value.lower():
            value = without_sign_in(value)
            if not value:
                continue
        lines.append(b"%b: %b\r\n" % (name, value))
    return known, lines


def _origin_form(
    method: bytes, host: bytes | None, target: bytes, http10: bool
) -> tuple[bytes, bytes]:
    """`(host, target)`; a target in absolute form names the host itself (RFC 9112, 3.2.2)."""
    if host is None:
        if not http10:
            raise BadRequest("Host is missing; an HTTP/1.1 request names it.")
        host = b""
    elif HOST.fullmatch(host) is None:
        raise BadRequest("Host is not a host's name and port.")
    if b"#" in target:
        raise BadRequest("The request target has a fragment; send what stands before the '#'.")
    if target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
        return host, target
    absolute = ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise BadRequest("The request target is neither a path nor an http URL of a plain host.")
    authority, rest = absolute.groups()
    return authority, rest if rest.startswith(b"/") else b"/" + rest


def _chunked(coding: bytes | None, http10: bool) -> bool:
    if coding is None:
        return False
    if http10:
        raise BadRequest("Transfer-Encoding needs HTTP/1.1.")
    if coding.strip().lower() != b"chunked":
        raise UnknownCoding("Only 'chunked' is read as a Transfer-Encoding.")
    return True


def _expects_continue(expectation: bytes | None) -> bool:
    if not expectation:
        return False
    if expectation.lower() != b"100-continue":
        raise ExpectationRefused("Only '100-continue' can be expected here; send no other Expect.")
    return True


def _takes_trailers(codings: bytes) -> bool:
    return any(token.partition(b";")[0].strip() == b"trailers" for token in tokens_of(codings))


def _trace(known: Mapping[bytes, bytes]) -> list[bytes]:
    """The lines of the caller's trace, if it is valid. None is begun here: its flags would decide
    for the service whether it traces."""
    parent = known[b"traceparent"]
    if TRACE_PARENT.fullmatch(parent) is None:
        return []
    state = known.get(b"tracestate")
    lines = [b"traceparent: %b\r\n" % parent]
    return lines if state is None else [*lines, b"tracestate: %b\r\n" % state]
