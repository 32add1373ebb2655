"""What the platform's own processes call, with the cluster's token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from aiohttp import web

from hotplate.machine.access.bearer import TokenCheck
from hotplate.platform.errors import Unauthorized

if TYPE_CHECKING:
    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class InternalRoutes:
    def __init__(self, token: str) -> None:
        self._check = TokenCheck(token)

    def routes(
        self,
        *,
        gateway: Handler,
        shutdown: Callable[[], Awaitable[None]],
        others: Sequence[web.RouteDef],
    ) -> list[web.RouteDef]:
        """`gateway` takes the links of gateways; `others` are guarded by the token as it is."""

        async def stop(_: web.Request) -> web.Response:
            await shutdown()
            return web.json_response({})

        guarded = [web.get("/internal/gateway", gateway), *others]
        guarded.append(web.post("/internal/shutdown", stop))
        return [web.route(each.method, each.path, self._guarded(each.handler)) for each in guarded]

    def _guarded(self, handler: Handler) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            if not self._check.admits(request):
                raise Unauthorized("the cluster's token is missing or wrong")
            return await handler(request)

        return answer
