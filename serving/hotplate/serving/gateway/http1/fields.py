"""Header fields: which of them belong to one connection, and which may stand behind a body. Pure.

What belongs to one connection (RFC 9110, 7.6.1) is not passed on. Some other fields are written
anew, or are our own.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.serving.gateway.protocol.headers import (
    DUE,
    PASSED,
    REPLICA,
    SECRET,
    TASK_ID,
    VERSION_FIELD,
)

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
"""The stock client sends its platform token in this field; it never reaches user code."""
SIGN_IN = b"hotplate_sign_in"
"""The cookie of a browser that has signed in to the platform. Browsers send a host's cookies to
all of its ports, so to deployments too; they neither get it nor set it."""
NOT_PASSED_ON = HOP_BY_HOP | REWRITTEN | {PLATFORM_SECRET, TASK_ID, SECRET, DUE, PASSED, REPLICA}
USUAL_OPTIONS = frozenset({b"close", b"keep-alive", b"upgrade"})
"""Values of `Connection` that are no names of fields."""
ALWAYS_KEPT = frozenset({b"authorization", b"content-type", b"cookie", b"set-cookie"})
"""Fields that a `Connection` header may not remove."""
NO_TRAILERS = NOT_PASSED_ON | {
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
    VERSION_FIELD,
}
"""Fields that decide how a message is read, sent on or admitted must not come after it (RFC 9110,
6.5)."""


def without_sign_in(cookies: bytes) -> bytes:
    """A `Cookie` field without the platform's sign-in; empty = nothing else was in it."""
    pairs = [pair.strip() for pair in cookies.split(b";")]
    return b"; ".join(pair for pair in pairs if not sets_sign_in(pair))


def sets_sign_in(cookie: bytes) -> bool:
    """Whether a cookie (a `Set-Cookie` field, or a pair of `Cookie`) is the platform's sign-in."""
    return cookie.partition(b"=")[0].strip(b' \t"').lower() == SIGN_IN


def tokens_of(value: bytes) -> frozenset[bytes]:
    if not value:
        return frozenset()
    return frozenset(token.strip() for token in value.lower().split(b","))


def without(lines: Sequence[bytes], names: frozenset[bytes]) -> list[bytes]:
    """The lines without the fields that `Connection` names as meant for us only."""
    names = names - ALWAYS_KEPT
    return [line for line in lines if line.partition(b":")[0].lower() not in names]


def last_chunk(trailers: Sequence[Field]) -> bytes:
    """The end of a body in chunks, with the trailers that are allowed there."""
    if not trailers:
        return b"0\r\n\r\n"
    lines = [b"%b: %b\r\n" % each for each in trailers if each[0].lower() not in NO_TRAILERS]
    return b"0\r\n%b\r\n" % b"".join(lines)
