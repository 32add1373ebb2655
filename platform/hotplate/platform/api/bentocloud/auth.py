"""The caller of a request, by its token; and the two questions that the client asks at login."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.typedefs import Middleware

from hotplate.cache.errors import CacheError
from hotplate.deploy.errors import DeployError
from hotplate.machine.access.quiet_connection import CALLERS_FAULT
from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.bentocloud.not_implemented import WITHOUT_TOKEN
from hotplate.platform.api.web import http_errors
from hotplate.platform.api.web.connection import malformed
from hotplate.platform.api.web.requests import CALLER, Handler, caller, organization
from hotplate.platform.errors import Forbidden, PlatformError, Unauthorized
from hotplate.platform.store.identities import API, ENDPOINT, Identities

TOKEN_HEADER = "X-YATAI-API-TOKEN"
GUARDED = ("/api/", "/ws/")
"""What paths begin with that need a token."""

logger = logging.getLogger("hotplate.api")


class Auth:
    """Finds the user of a request by its token; refuses a request that needs one and has none."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/v1/auth/current", self.current_user),
            web.get("/api/v1/current_org", self.current_organization),
        ]

    async def current_user(self, request: web.Request) -> web.Response:
        """`GET /api/v1/auth/current`: the token's user."""
        return web.json_response(views.user(caller(request)))

    async def current_organization(self, request: web.Request) -> web.Response:
        """`GET /api/v1/current_org`: the organization of the token's user."""
        return web.json_response(views.organization(organization(request)))

    def middleware(self) -> Middleware:
        """What lets requests through to the handlers, once `admit` has."""

        @web.middleware
        async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path.startswith(GUARDED) and request.path not in WITHOUT_TOKEN:
                await self.admit(request)
            return await handler(request)

        return authenticate

    async def admit(self, request: web.Request) -> None:
        """Note whose token the request has. Raises Unauthorized and Forbidden."""
        secret = request.headers.get(TOKEN_HEADER, "")
        if not secret:
            raise Unauthorized(f"the header {TOKEN_HEADER} with an API token is missing")
        known = secret.isascii()  # the store keeps text, and any bytes may come
        token = await self._identities.run(self._identities.find_token, secret) if known else None
        if token is None:
            raise Unauthorized("the API token is unknown or expired; log in with another")
        if API not in token.scopes:
            raise Forbidden(
                f"token {token.name!r} lacks the scope {API!r}; use one that has it"
                + (", this is for callers of deployments" if ENDPOINT in token.scopes else "")
            )
        request[CALLER] = token.user


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error becomes `{"error": {"code", "message"}}`; only bugs are logged."""
    try:
        return await handler(request)
    except (PlatformError, CacheError, DeployError) as error:
        return http_errors.error_response(error)
    except web.HTTPException as error:
        return http_errors.plain_response(request.path, error)
    except CALLERS_FAULT as error:
        # The caller left, or its body cannot be read to its end.
        if isinstance(error, ConnectionError):
            raise
        return malformed(error)
    except Exception:  # a bug: the caller gets its answer, the log gets the traceback
        logger.exception("%s %s failed", request.method, request.path)
        message = "something went wrong inside Hotplate; its log has the details"
        return http_errors.response(500, "internal", message)
