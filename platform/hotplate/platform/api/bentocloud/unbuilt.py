"""What BentoCloud has and Hotplate has not yet: what to do instead, as the client prints it.

The client makes "not found" of a 404, whatever its body says, and prints the body of a 501.
"""

from __future__ import annotations

from aiohttp import web

from hotplate.platform.api.web.requests import Handler
from hotplate.platform.errors import NotThereYet

SECRETS = (
    "secrets are not there yet: pass the values as environment variables, for instance with "
    "'bentoml deploy --env NAME', which takes the value that NAME has where you run it"
)
CODE = (
    "code spaces ('bentoml code', dev: true) are not there yet: deploy the folder with "
    "'bentoml deploy . -n NAME', and after a change with "
    "'bentoml deployment update NAME --bento .'; 'bentoml serve --reload' tries it on your machine"
)
CANARY = (
    "canary deployments are not there yet: leave it out and deploy the other version under a name "
    "of its own; an update needs none, since the old revision serves until the new one is ready"
)
BROWSER = (
    "login in a browser is not there yet: run the line that 'hotplate up' printed, "
    "bentoml cloud login --endpoint URL --api-token TOKEN"
)

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
    return [
        *(web.route("*", path, _refusing(said)) for path, said in ROUTES.items()),
        web.get(CODE_PATH, _code),
        web.get(TOKEN_PATH, _token),
        web.get("/api_tokens", _page),
        web.get("/api-token", _page),
    ]


def _refusing(said: str) -> Handler:
    async def refuse(_: web.Request) -> web.StreamResponse:
        raise NotThereYet(said)

    return refuse


async def _code(_: web.Request) -> web.Response:
    return web.json_response({"code": NO_CODE})


async def _token(_: web.Request) -> web.Response:
    """One that is good for nothing: without any the client asks again every second, for ever."""
    return web.json_response({"token": NO_CODE})


async def _page(_: web.Request) -> web.Response:
    """Where the client sends its user, before and after it failed."""
    return web.Response(text=f"{BROWSER}\n")
