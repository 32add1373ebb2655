"""The routes of what Hotplate does not offer yet: they answer with what to do instead.

The client makes "not found" of a 404, whatever its body says, and prints the body of a 501.
"""

from __future__ import annotations

from aiohttp import web

from hotplate.platform.api.web.requests import Handler
from hotplate.platform.errors import NotImplementedYet
from hotplate.platform.spec.not_offered import BROWSER, CODE, SECRETS

ROUTES = {
    "/api/v1/org_secrets": SECRETS,
    "/api/v1/org_secrets/{name}": SECRETS,
    "/api/v2/deployments/{name}/files": CODE,
}
CODE_PATH, TOKEN_PATH = "/api/v1/auth/code", "/api/v1/auth/token"
WITHOUT_TOKEN = (CODE_PATH, TOKEN_PATH)
"""A login asks these, before it has one."""
NO_CODE = "not-there-yet--run-the-login-line-that-hotplate-up-printed"
"""The client takes any word, and prints the page's address with it."""


def routes() -> list[web.RouteDef]:
    """Those that answer 501 with a sentence, and a login's, which leads to one."""
    return [
        *(web.route("*", path, _refusing(message)) for path, message in ROUTES.items()),
        web.get(CODE_PATH, _code),
        web.get(TOKEN_PATH, _token),
        web.get("/api_tokens", _page),
        web.get("/api-token", _page),
    ]


def _refusing(message: str) -> Handler:
    async def refuse(_: web.Request) -> web.StreamResponse:
        raise NotImplementedYet(message)

    return refuse


async def _code(_: web.Request) -> web.Response:
    return web.json_response({"code": NO_CODE})


async def _token(_: web.Request) -> web.Response:
    """One that is good for nothing: without any the client asks again every second, for ever."""
    return web.json_response({"token": NO_CODE})


async def _page(_: web.Request) -> web.Response:
    """Where the client sends its user, before and after it failed."""
    return web.Response(text=f"{BROWSER}\n")
