"""The routes of what Hotplate does not offer yet: they answer with what to do instead.

The client makes "not found" of a 404, whatever its body says, and prints the body of a 501.
"""

from __future__ import annotations

from aiohttp import web

from hotplate.platform.api.web.requests import Handler
from hotplate.platform.errors import NotImplementedYet
from hotplate.platform.spec.not_offered import CODE

ROUTES = {
    "/api/v2/deployments/{name}/files": CODE,
}


def routes() -> list[web.RouteDef]:
    """Those that answer 501 with a sentence."""
    return [web.route("*", path, _refusing(message)) for path, message in ROUTES.items()]


def _refusing(message: str) -> Handler:
    async def refuse(_: web.Request) -> web.StreamResponse:
        raise NotImplementedYet(message)

    return refuse
