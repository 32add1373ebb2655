"""The only table from errors to HTTP statuses, and the one body that every error has."""

from __future__ import annotations

from aiohttp import web

from hotplate.cache.errors import (
    BadArchive,
    CacheError,
    NoSpace,
    OriginUnavailable,
    UnknownManifest,
)
from hotplate.deploy.errors import DeployError, UnknownReplica
from hotplate.platform.errors import (
    Alone,
    BodyCut,
    BodyLarge,
    BodySlow,
    Busy,
    ChangedMeanwhile,
    Conflict,
    Forbidden,
    Invalid,
    LinkExpired,
    NoLeader,
    NotCallable,
    NotFound,
    PlatformError,
    PortsExhausted,
    QuotaExceeded,
    SecretsUnreadable,
    StillUnpacking,
    StoreFailed,
    TooManyTries,
    Unauthorized,
)

STATUSES: dict[type[Exception], int] = {
    Unauthorized: 401,
    TooManyTries: 429,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    ChangedMeanwhile: 412,
    QuotaExceeded: 403,
    Alone: 403,
    Invalid: 400,
    BodyCut: 400,
    BodySlow: 408,
    BodyLarge: 413,
    LinkExpired: 403,
    PortsExhausted: 503,
    StoreFailed: 503,
    NoLeader: 503,
    NotCallable: 503,
    SecretsUnreadable: 503,
    StillUnpacking: 503,
    Busy: 503,
    BadArchive: 400,
    NoSpace: 507,
    OriginUnavailable: 503,
    UnknownManifest: 404,
    UnknownReplica: 404,
}


def error_response(error: PlatformError | CacheError | DeployError) -> web.Response:
    """`{"error": {"code", "message"}}`. The bentoml client prints it as it is."""
    retry_after_s = getattr(error, "retry_after_s", None)
    return response(status_of(error), error.code, str(error), retry_after_s)


def status_of(error: Exception) -> int:
    """500 for what is not in the table."""
    return next((STATUSES[kind] for kind in type(error).mro() if kind in STATUSES), 500)


def plain_response(path: str, error: web.HTTPException) -> web.Response:
    """The same for what aiohttp would answer in plain text: no such path, method, expectation."""
    code = error.reason.lower().replace(" ", "_")
    answer = response(error.status, code, f"{path}: {error.reason}")
    if isinstance(error, web.HTTPMethodNotAllowed):
        answer.headers["Allow"] = error.headers["Allow"]
    return answer


def response(
    status: int, code: str, message: str, retry_after_s: int | None = None
) -> web.Response:
    """An error's answer."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    body = {"error": {"code": code, "message": message}}
    return web.json_response(body, status=status, headers=headers)
