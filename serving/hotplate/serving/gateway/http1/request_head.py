"""Request heads: read from a parser's fields, written for a replica. Pure.

What belongs to one connection (RFC 9110, 7.6.1) is taken out; how the body is framed is written
anew, so that the two sides can never disagree on where a message ends. The rest is passed on as
it came.
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
from hotplate.serving.gateway.protocol.headers import DUE, SECRET, TASK_ID

Field = tuple[bytes, bytes]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
REWRITTEN = frozenset(
    {
        b"host",
        b"content-length",
        b"expect",
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"x-forwarded-host",
        b"x-request-id",
        b"traceparent",
        b"tracestate",
    }
)
PLATFORM_SECRET = b"x-yatai-api-token"
"""The stock client sends its platform token in it; it never reaches user code."""
TAKEN_OUT = HOP_BY_HOP | REWRITTEN | {PLATFORM_SECRET, TASK_ID, SECRET, DUE}
WEBSOCKET = b"websocket"
PRIORITY, TIMEOUT = b"priority", b"x-request-timeout-seconds"
ORIGIN, SITE = b"origin", b"sec-fetch-site"
"""What browsers say of the page that sends a request; programs send neither."""
NOTED = TAKEN_OUT | {b"authorization", b"content-type", PRIORITY, TIMEOUT, ORIGIN, SITE}
USUAL_OPTIONS = frozenset({b"close", b"keep-alive", b"upgrade"})
"""What a `Connection` header says besides names of fields."""
ALWAYS_KEPT = frozenset({b"authorization", b"content-type", b"cookie", b"set-cookie"})
"""Fields that a `Connection` header may not take out on their way."""
NO_TRAILERS = TAKEN_OUT | {
    b"authorization",
    b"cache-control",
    b"content-encoding",
    b"content-range",
    b"content-type",
    b"cookie",
    b"max-forwards",
    b"pragma",
    b"range",
    b"set-cookie",
    b"www-authenticate",
}
"""What decides how a message is read, sent on or let in cannot come behind it (RFC 9110, 6.5)."""
REQUEST_ID_BYTES = 200
TRACE_PARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)
"""W3C trace context, 3.2."""
HOST = re.compile(rb"[A-Za-z0-9\-._~%!$&'()*+;=:\[\]]*")
"""Host and port (RFC 3986, 3.2.2), or nothing; without the comma, by which two could be joined."""
ABSOLUTE = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([A-Za-z0-9\-._~%!$&'()*+;=:\[\]]+)((?:[/?].*)?)")


class Memo:
    """What another layer has found out of a head, for the next time that it comes."""

    __slots__ = ()


@dataclass(slots=True)
class RequestHead:
    """A request's head as read, shared by all that come with the same; `to_replica` makes of it
    what a replica gets."""

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
    """Whose page sends it; empty = no page, or a browser that does not say."""
    site: bytes
    """Sec-Fetch-Site; the same."""
    given_id: bytes
    """The caller's own id for it; empty = none."""
    host: bytes
    forwarded: tuple[bytes, bytes, bytes]
    """X-Forwarded-For, -Proto and -Host for the replica."""
    peer: bytes
    """The caller's address; empty = another gateway has it, and passes the request on."""
    kept: list[bytes]
    """The lines that are passed on as they came."""
    repeats: bool
    """Nothing in it is this one request's own, so it may come again as it is."""
    secret: bytes = b""
    """By which a service shows of which revision it is; empty = none."""
    due_at: float = math.inf
    """When its answer is due, where another gateway has counted its time; loop seconds."""
    memo: Memo | None = field(default=None, compare=False)
    written: tuple[bytes, bytes] | None = field(default=None, compare=False)
    """The most usual head for a replica: before the request's id and after it."""

    @property
    def has_body(self) -> bool:
        return self.chunked or self.content_length > 0

    def value(self, name: bytes) -> bytes:
        """The value of the first field with this name (lower case) that is passed on; empty = none.

        It looks through all of them: not for every request.
        """
        for line in self.kept:
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
        kept = self.kept
        if self.authorization and not with_authorization:
            kept = [line for line in kept if line[:14].lower() != b"authorization:"]
        source, proto, host = self.forwarded
        before = [
            b"%b %b%b HTTP/1.1\r\nHost: %b\r\n"
            % (self.method, prefix, self.target, self.host or default_host),
            *kept,
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
    """Reads a request's head; `peer` is the caller's address, `proto` (http or https) what it came
    by.

    An empty `peer` is another gateway, which has written down already for whom it asks.
    Raises `BadRequest` and its kinds for what replicas might read differently. The reader has
    already refused both lengths at once, several lengths, folded lines and bare line feeds.
    """
    if method == b"CONNECT":
        raise MethodRefused("CONNECT is not served; send requests to the deployment itself.")
    noted, kept = _sort(fields)
    connection = tokens_of(noted.get(b"connection", b""))
    if connection - USUAL_OPTIONS:
        kept = without(kept, connection)
    host, target = _origin_form(method, noted.get(b"host"), target, http10)
    chunked = _chunked(noted.get(b"transfer-encoding"), http10)
    upgrade = noted.get(b"upgrade", b"").lower() if b"upgrade" in connection else b""
    if b"te" in noted and not http10 and not upgrade and _takes_trailers(noted[b"te"]):
        kept.append(b"TE: trailers\r\nConnection: TE\r\n")
    if chunked and b"trailer" in noted:
        kept.append(b"Trailer: %b\r\n" % noted[b"trailer"])
    if b"traceparent" in noted:
        kept += _trace(noted)
    given_id = noted.get(b"x-request-id", b"")
    earlier = noted.get(b"x-forwarded-for")
    return RequestHead(
        method=method,
        target=target,
        path=target.partition(b"?")[0],
        http10=http10,
        keep_alive=b"keep-alive" in connection if http10 else b"close" not in connection,
        content_length=int(noted.get(b"content-length", b"0")),
        chunked=chunked,
        expects_continue=not http10 and _expects_continue(noted.get(b"expect")),
        upgrade=upgrade,
        authorization=noted.get(b"authorization", b""),
        content_type=noted.get(b"content-type", b"").lower(),
        priority=noted.get(PRIORITY, b""),
        timeout=noted.get(TIMEOUT, b""),
        origin=noted.get(ORIGIN, b""),
        site=noted.get(SITE, b""),
        given_id=given_id if len(given_id) <= REQUEST_ID_BYTES else b"",
        host=host,
        forwarded=(
            _forwarded_for(earlier, peer),
            noted.get(b"x-forwarded-proto", proto),
            noted.get(b"x-forwarded-host", host),
        ),
        peer=peer,
        kept=kept,
        repeats=not (given_id or upgrade or b"traceparent" in noted or DUE in noted),
        secret=noted.get(SECRET, b""),
        due_at=float(noted[DUE]) if DUE in noted and not peer else math.inf,
    )


def for_owner(head: bytes, secret: bytes, due_at: float) -> bytes:
    """The head as the gateway that owns the route is to have it."""
    secret_line = b"%b: %b\r\n" % (SECRET, secret) if secret else b""
    due_line = b"%b: %.3f\r\n" % (DUE, due_at) if due_at < math.inf else b""
    return b"%b%b%b\r\n" % (head[:-2], secret_line, due_line)


def _forwarded_for(earlier: bytes | None, peer: bytes) -> bytes:
    if earlier is None or not peer:
        return earlier or peer
    return earlier + b", " + peer


def _sort(fields: Sequence[Field]) -> tuple[dict[bytes, bytes], list[bytes]]:
    """What the gateway looks at (repeated fields joined), and the lines to pass on."""
    noted: dict[bytes, bytes] = {}
    kept: list[bytes] = []
    for name, value in fields:
        key = name.lower()
        if key in NOTED:
            if key in noted:
                if key == b"host":
                    raise BadRequest("Host is given twice; send it once.")
                if key not in TAKEN_OUT and key != PRIORITY:
                    raise BadRequest(f"{key.decode()} is given twice; send it once.")
                noted[key] += b", " + value
            else:
                noted[key] = value
            if key in TAKEN_OUT:
                continue
        kept.append(b"%b: %b\r\n" % (name, value))
    return noted, kept


def tokens_of(value: bytes) -> frozenset[bytes]:
    if not value:
        return frozenset()
    return frozenset(token.strip() for token in value.lower().split(b","))


def without(kept: Sequence[bytes], names: frozenset[bytes]) -> list[bytes]:
    """Drops the lines of the fields that `Connection` names as meant for us only."""
    names = names - ALWAYS_KEPT
    return [line for line in kept if line.partition(b":")[0].lower() not in names]


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


def _trace(noted: Mapping[bytes, bytes]) -> list[bytes]:
    """The caller's trace goes on if it can be read. None is begun here: its flags would decide
    for the service whether it traces."""
    parent = noted[b"traceparent"]
    if TRACE_PARENT.fullmatch(parent) is None:
        return []
    state = noted.get(b"tracestate")
    lines = [b"traceparent: %b\r\n" % parent]
    return lines if state is None else [*lines, b"tracestate: %b\r\n" % state]


def last_chunk(trailers: Sequence[Field]) -> bytes:
    """What ends a body in chunks, with those of the trailers that may stand there."""
    if not trailers:
        return b"0\r\n\r\n"
    lines = [b"%b: %b\r\n" % each for each in trailers if each[0].lower() not in NO_TRAILERS]
    return b"0\r\n%b\r\n" % b"".join(lines)
