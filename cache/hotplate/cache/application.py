"""The agent's HTTP application: its routes, which requests are let in, how errors are shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from hotplate.cache.control import Control
from hotplate.cache.errors import (
    CacheError,
    ChunkCorrupt,
    Misled,
    NoSpace,
    OriginBusy,
    OriginUnavailable,
    Unauthorized,
    UnknownBlob,
    UnknownManifest,
    UnknownUrl,
    VersionChanged,
)
from hotplate.machine.access.bearer import TokenCheck
from hotplate.machine.access.metrics_check import PATH
from hotplate.machine.access.middleware import refuse_cross_site
from hotplate.machine.access.own_hosts import OwnHosts

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STATUS: dict[type[CacheError], int] = {
    Unauthorized: 401,
    UnknownManifest: 404,
    UnknownUrl: 404,
    VersionChanged: 409,
    UnknownBlob: 404,
    ChunkCorrupt: 502,
    Misled: 502,
    OriginUnavailable: 503,
    OriginBusy: 503,
    NoSpace: 507,
}
OPEN = ("/healthz", PATH)
"""The first says nothing, and the second asks for tokens of its own."""
_TREE = "/v1/trees/{manifest:[0-9a-f]{64}}"


def application(control: Control, token: str, own: OwnHosts) -> web.Application:
    """The app, which answers under its `own` host names; an empty `token` lets every program in."""
    app = web.Application(
        middlewares=[refuse_cross_site(own), _errors, _authorize(TokenCheck(token))]
    )
    app.add_routes(
        [
            web.get("/healthz", control.healthz),
            web.get(PATH, control.metrics),
            web.put("/v1/readers", control.put_readers),
            web.get("/v1/status", control.status),
            web.get("/v1/troubles", control.troubles),
            web.get("/v1/trees", control.list_trees),
            web.put(_TREE, control.put_tree),
            web.get(_TREE, control.get_tree),
            web.delete(_TREE, control.delete_tree),
            web.put("/v1/doors", control.put_socket),
            web.put("/v1/pulls", control.put_pull),
            web.get("/v1/pulls", control.get_pull),
            web.post("/v1/peers", control.greet),
            web.get("/v1/locations", control.get_location),
            web.get("/v1/held", control.list_held),
            web.put("/v1/held", control.warm_held),
            web.delete("/v1/held", control.delete_held),
            web.post("/v1/held/verify", control.verify_held),
        ]
    )
    return app


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure has one body: `{"error": {"code", "message"}}`."""
    try:
        return await handler(request)
    except CacheError as error:
        return _failure(_STATUS.get(type(error), 500), error.code, str(error))
    except web.HTTPException as error:
        code = (error.reason or "error").lower().replace(" ", "_")
        return _failure(error.status, code, f"{request.method} {request.path}: {error.reason}")


def _failure(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message}}, status=status)


def _authorize(check: TokenCheck) -> Middleware:
    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in OPEN or check.admits(request):
            return await handler(request)
        message = "the agent needs its token in the Authorization header"
        return _failure(401, "unauthorized", message)

    return authorize
