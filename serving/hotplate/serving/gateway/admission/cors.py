"""Which pages of other origins may call a route (CORS), for the gateway's own responses. Pure.

The rules are the service's own (`http.cors` of `@bentoml.service`), with Starlette's meaning, which
BentoML gives them too. A replica adds its fields to its own responses. A service that allows
origins by a regular expression has no rules here: a match could take any time, and all requests
would wait; so its replicas answer preflights, and our errors have no CORS fields.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.protocol.cors_rules import Cors

ALWAYS_ALLOWED = ("accept", "accept-language", "content-language", "content-type")
"""Request fields that the Fetch standard lets every page send."""
OWN_FIELDS = ("Retry-After", "X-Request-Id")
"""Fields of the gateway's responses that a page should be able to read."""
ALL_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


def is_preflight(request: RequestHead) -> bool:
    """Whether a browser asks, without the token, whether a page may send a request."""
    return (
        request.method == b"OPTIONS"
        and bool(request.value(b"origin"))
        and bool(request.value(b"access-control-request-method"))
    )


def preflight(cors: Cors, request: RequestHead) -> tuple[int, bytes, bytes]:
    """`(status, header lines, JSON body)` of the response to a preflight."""
    origin = _text(request.value(b"origin"))
    method = _text(request.value(b"access-control-request-method"))
    asked = _text(request.value(b"access-control-request-headers"))
    allowed = {*ALWAYS_ALLOWED, *(name.lower() for name in cors.allow_headers)}
    refused = []
    if not cors.allows(origin):
        refused.append("origin")
    if method not in _methods(cors):
        refused.append("method")
    names = [name.strip() for name in asked.split(",") if name.strip()]
    if "*" not in allowed and not allowed.issuperset(name.lower() for name in names):
        refused.append("headers")
    lines = [
        *_origin_lines(cors, origin),
        f"Access-Control-Allow-Methods: {', '.join(_methods(cors))}",
        f"Access-Control-Max-Age: {cors.max_age_s}",
    ]
    if shown := asked if "*" in allowed else ", ".join(sorted(allowed)):
        lines.append(f"Access-Control-Allow-Headers: {shown}")
    if refused:
        return 400, _bytes(lines), f'{{"error": "Disallowed CORS {", ".join(refused)}"}}'.encode()
    return 200, _bytes(lines), b'"OK"'


def answer_lines(cors: Cors | None, request: RequestHead) -> bytes:
    """The header lines without which a page could not read a response of the gateway's own."""
    origin = "" if cors is None else _text(request.value(b"origin"))
    if cors is None or not origin:
        return b""
    exposed = ", ".join(dict.fromkeys((*cors.expose_headers, *OWN_FIELDS)))
    return _bytes([*_origin_lines(cors, origin), f"Access-Control-Expose-Headers: {exposed}"])


def _origin_lines(cors: Cors, origin: str) -> Sequence[str]:
    anybody = "*" in cors.allow_origins and not cors.allow_credentials
    if anybody:
        return ["Access-Control-Allow-Origin: *"]
    if not cors.allows(origin):
        return ["Vary: Origin"]
    lines = [f"Access-Control-Allow-Origin: {origin}", "Vary: Origin"]
    return [*lines, "Access-Control-Allow-Credentials: true"] if cors.allow_credentials else lines


def _methods(cors: Cors) -> Sequence[str]:
    return ALL_METHODS if "*" in cors.allow_methods else cors.allow_methods


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _bytes(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")
