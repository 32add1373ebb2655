"""Turns away requests that a browser was led to send: by a name made to lead here, or by a page of
another origin. For servers that only their own pages and programs are to call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware

from hotplate.machine.access.cross_site import REFUSED, RequestContext, is_foreign
from hotplate.machine.access.own_hosts import OwnHosts

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HTTP10 = (1, 0)


def refuse_cross_site(own: OwnHosts) -> Middleware:
    """421 for a foreign `Host`, 403 for another origin's page; nothing is looked at before."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = _hosts(request)
        if refusal_text := own.refusal(hosts, http10=tuple(request.version) <= HTTP10):
            return _refused(421, "misdirected_request", refusal_text)
        browsed = _browsed(request, hosts[-1] if hosts else "")
        if is_foreign(browsed, own.names):
            origin = request.headers.get("Origin", "") or browsed.site
            return _refused(403, "cross_site", REFUSED.format(origin=origin[:100]))
        return await handler(request)

    return check


def _hosts(request: web.Request) -> Sequence[str]:
    """Every host that it names: one is not to be checked and another believed."""
    # Bytes that are no ASCII come as half surrogates: they are no name's.
    named = [
        value.encode(errors="replace").decode() for value in request.headers.getall("Host", [])
    ]
    absolute = request.raw_path.partition("://")
    if absolute[1] and not absolute[0].startswith("/"):
        named.append(absolute[2].partition("/")[0].partition("?")[0])
    return named


def _browsed(request: web.Request, host: str) -> RequestContext:
    headers = request.headers
    # Two lines are no browser's; joined they are nobody's origin and no site.
    origin, site = (", ".join(headers.getall(name, [])) for name in ("Origin", "Sec-Fetch-Site"))
    mode, dest = (headers.get(f"Sec-Fetch-{name}", "") for name in ("Mode", "Dest"))
    return RequestContext(request.method, host, origin, site, mode, dest, secure=request.secure)


def _refused(status: int, code: str, message: str) -> web.Response:
    error = {"error": {"code": code, "message": message}}
    return web.json_response(error, status=status, headers={"Connection": "close"})
