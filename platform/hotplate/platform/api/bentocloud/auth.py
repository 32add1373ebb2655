"""The caller of a request, by its token or its browser's sign-in; and what the client asks at
login."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import NoReturn
from uuid import uuid4

from aiohttp import web
from aiohttp.typedefs import Middleware

from hotplate.cache.errors import CacheError
from hotplate.deploy.errors import DeployError
from hotplate.machine.access.metrics_check import ACTS_FOR, REFUSAL, TOKEN_HEADER, given_token
from hotplate.machine.access.own_hosts import host_of
from hotplate.machine.access.proxies import client_address
from hotplate.machine.access.quiet_connection import CALLERS_FAULT
from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.web import http_errors
from hotplate.platform.api.web.access import ANY, Access, check, need, opens
from hotplate.platform.api.web.connection import malformed
from hotplate.platform.api.web.refused_tries import RefusedTries
from hotplate.platform.api.web.requests import (
    ACCESS,
    Handler,
    caller,
    check_characters,
    organization,
)
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.api.web.tries import WrongTries
from hotplate.platform.controller.interface import CallingReplica
from hotplate.platform.errors import (
    Forbidden,
    NotFound,
    PlatformError,
    StoreFailed,
    TooManyTries,
    Unauthorized,
)
from hotplate.platform.store.audit import ACTOR, Actor
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole, Token, User
from hotplate.serving.gateway.protocol.headers import REPLICA_KEY

ORGANIZATION_HEADER = ACTS_FOR
"""For which organization a caller acts that may act for several."""
COOKIE = "hotplate_sign_in"
GUARDED = ("/api/", "/ws/")
"""What paths begin with that need a token."""
WITHOUT_TOKEN = ("/api/v1/auth/code", "/api/v1/auth/token")
"""A login asks these, before it has one."""
ASKED_AT_LOGIN = ("/api/v1/auth/current", "/api/v1/current_org")
"""What `bentoml cloud login` asks with the token that it was given."""
NO_LOGIN = "login.refused"
LET_IN = web.RequestKey("let_in", bool)
"""Set where the caller of a request was known when it began."""
USE_S = 60.0
"""How exactly it is kept when a token was used last."""

logger = logging.getLogger("hotplate.api")


class Auth:
    """Finds the caller of a request; refuses a request that may not be answered."""

    def __init__(
        self,
        store: Store,
        settings: ApiSettings,
        replica_with: Callable[[str], CallingReplica | None] = lambda key: None,
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        """`replica_with` says whose key a replica's is. Without it there is none: a control plane
        that waits passes on what a replica may ask. `refused` is called for each wrong try."""
        self._refused = refused
        self._store = store
        self._settings = settings
        self._replica_with = replica_with
        self._tries = WrongTries()
        self._refusals = RefusedTries(store.audit)
        self._noting: set[asyncio.Task[None]] = set()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/v1/auth/current", self.current_user),
            web.get("/api/v1/current_org", self.current_organization),
        ]

    async def current_user(self, request: web.Request) -> web.Response:
        """`GET /api/v1/auth/current`: the token's user."""
        return web.json_response(views.user(caller(request)))

    async def current_organization(self, request: web.Request) -> web.Response:
        """`GET /api/v1/current_org`: the organization for which the caller acts."""
        return web.json_response(views.organization(organization(request)))

    def middleware(self) -> Middleware:
        """What lets requests through to the handlers, once `admit` has."""

        @web.middleware
        async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
            # The requests of a connection share a context, so each begins anew.
            ACTOR.set(Actor(address=self.address(request), request_id=_request_id(request)))
            try:
                if request.path.startswith(GUARDED) and request.path not in WITHOUT_TOKEN:
                    await self.admit(request)
                    self._check(request)
                return await handler(request)
            except Forbidden as error:
                self.note(request, error, "access.refused")
                raise
            finally:
                ACTOR.set(None)

        return authenticate

    async def admit(self, request: web.Request) -> Access:
        """Note who calls. Raises Unauthorized, TooManyTries, Forbidden and NotFound."""
        if request.headers.get(TOKEN_HEADER) or COOKIE not in request.cookies:
            found = await self._by_token(request, request.headers.get(TOKEN_HEADER, ""))
        else:
            found = await self._by_sign_in(request)
        request[ACCESS] = found = await self._acting(request, found)
        user, actor = found.user, ACTOR.get() or Actor()
        ACTOR.set(
            replace(actor, name=user.name, token=found.token, organization=user.organization.name)
        )
        return found

    async def check_again(self, request: web.Request) -> None:
        """Whether the caller of a request that was let in may still make it. Raises Unauthorized,
        Forbidden and NotFound; that it may not is no wrong try."""
        request[LET_IN] = True
        await self.admit(request)
        self._check(request)

    async def admit_bearer(self, request: web.Request) -> Access:
        """Who calls with a token that may also come as `Authorization: Bearer`, as programs send
        it that are not ours. Raises as `admit` does."""
        secret = given_token(request)
        if not secret:
            raise Unauthorized(REFUSAL)
        found = await self._acting(request, await self._by_token(request, secret))
        request[ACCESS] = found
        return found

    def address(self, request: web.Request) -> str:
        """From where the request came."""
        forwarded_for = ", ".join(request.headers.getall("X-Forwarded-For", []))
        proxies = self._settings.trusted_proxies
        return client_address(request.remote or "", forwarded_for, proxies)

    def note(self, request: web.Request, refusal: PlatformError, action: str = NO_LOGIN) -> None:
        """Keeps in the audit that somebody was refused."""
        self._refusals.note(action, request, str(refusal))

    def refuse(
        self, request: web.Request, refusal: Unauthorized, action: str = NO_LOGIN
    ) -> NoReturn:
        """Counts a wrong token, code or link. Raises the refusal, or TooManyTries."""
        address = self.address(request)
        if request.get(LET_IN):
            raise refusal
        self._refused()
        self.note(request, refusal, action)
        if (wait_s := self._tries.wrong(address, asyncio.get_running_loop().time())) is not None:
            raise TooManyTries(address, wait_s) from refusal
        raise refusal

    def _check(self, request: web.Request) -> None:
        """Raises Forbidden where the caller may not make this call."""
        resource = request.match_info.route.resource
        # Where there is no such path or method, that is what is answered.
        needed = ANY if resource is None else need(request.method, resource.canonical)
        if needed is None:
            raise Forbidden(f"{request.path}: nobody may call this")
        if not request[ACCESS].is_replicas:  # whose key is for one call only
            check(request[ACCESS], needed)

    async def _by_token(self, request: web.Request, secret: str) -> Access:
        if not secret:
            raise Unauthorized(f"the header {TOKEN_HEADER} with an API token is missing")
        if secret.startswith(REPLICA_KEY):
            return self._by_replica_key(request, secret)
        token = await self.token(secret)
        if token is None:
            self.refuse(
                request,
                Unauthorized("the API token is unknown or expired; log in with another"),
                NO_LOGIN if request.path in ASKED_AT_LOGIN else "token.refused",
            )
        return Access(
            token.user,
            token.role,
            token.scopes,
            operator=token.operator,
            token=token.name,
            token_id=token.id,
            everywhere=token.operator,
            is_organizations=token.is_organizations,
        )

    def _by_replica_key(self, request: web.Request, secret: str) -> Access:
        replica = self._replica_with(secret)
        if replica is None:
            self.refuse(
                request, Unauthorized("the key is of a replica that is gone, or of none at all")
            )
        name = f"replica {replica.id}"
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical
        if not opens(replica.opens, request.method, path, request.match_info.get("name", "")):
            ACTOR.set(
                replace(ACTOR.get() or Actor(), name=name, organization=replica.organization.name)
            )
            raise Forbidden(
                f"the key of {name} opens the deployments that its bento names "
                f"({', '.join(sorted(replica.opens))}), and nothing else; use a token"
            )
        user = User(0, "", name, "", replica.organization)
        return Access(user, MemberRole.ENDPOINT_USER, (), is_replicas=True)

    async def token(self, secret: str) -> Token | None:
        """The token with that secret, which counts as used now; None = there is none."""
        if not secret.isascii():  # the store keeps text, and any bytes may come
            return None
        token = await self._store.run(self._store.tokens.find_token, secret)
        now = datetime.now(UTC)
        if token is not None and (
            token.last_used_at is None or (now - token.last_used_at).total_seconds() >= USE_S
        ):
            # Nobody waits for it, and it fails where nothing can be written.
            noting = asyncio.create_task(self._note_use(token, now))
            self._noting.add(noting)
            noting.add_done_callback(self._noting.discard)
        return token

    async def _note_use(self, token: Token, now: datetime) -> None:
        try:
            await self._store.run(self._store.tokens.used, now, [token.id])
            if not token.is_organizations:
                user = token.user
                seen = self._store.identities.seen
                await self._store.run(seen, user.id, user.organization.id, now)
        except StoreFailed as error:
            logger.warning("it is not kept that token %r was used: %s", token.name, error)

    async def _by_sign_in(self, request: web.Request) -> Access:
        secret = request.cookies[COOKIE]
        changes = request.method not in ("GET", "HEAD") or request.path.startswith("/ws/")
        if changes and not self._is_from_our_page(request):
            raise Forbidden("a request with a sign-in needs the header Origin of one of our pages")
        # A page of another port of this host may have put one beside ours.
        known = secret.isascii() and request.headers.get("Cookie", "").count(f"{COOKIE}=") == 1
        found = await self._store.run(self._store.sign_ins.find, secret) if known else None
        if found is None:
            self.refuse(
                request, Unauthorized("the sign-in is unknown or has expired; sign in again")
            )
        return Access(
            found.user,
            found.role,
            found.scopes,
            operator=found.operator,
            everywhere=found.everywhere,
            is_organizations=found.is_organizations,
        )

    def _is_from_our_page(self, request: web.Request) -> bool:
        """That it is no other origin's is checked for every request; here a browser must have said
        so. A page by http is not ours where the world calls us by https: who is on the way may have
        written it."""
        origin, ours = request.headers.get("Origin", ""), self._settings.origin(request)
        scheme, _, authority = origin.lower().partition("://")
        safe_scheme, _, safe_authority = ours.lower().partition("://")
        is_weaker = scheme == "http" and safe_scheme == "https"
        same_host = host_of(authority) == host_of(safe_authority)
        return bool(origin) and not (is_weaker and same_host)

    async def _acting(self, request: web.Request, found: Access) -> Access:
        """For the organization that the request names, if the caller may. Raises NotFound, as if
        another one did not exist."""
        named = request.headers.get(ORGANIZATION_HEADER, "")
        user = found.user
        if not named or named == user.organization.name:
            return found
        role = MemberRole.ADMIN
        if not found.everywhere or not named.isascii():
            raise NotFound(f"organization {named!r:.80} does not exist")
        tenant = await self._store.run(self._store.organizations.organization, named)
        if not found.operator:
            try:
                member = await self._store.run(self._store.identities.member, tenant, user.name)
            except NotFound:
                raise NotFound(f"organization {named!r:.80} does not exist") from None
            role, user = member.role, member.user
        acting = User(user.id, user.uid, user.name, user.email, tenant)
        return replace(found, user=acting, role=role)


def _request_id(request: web.Request) -> str:
    return request.headers.get("X-Request-Id", "") or uuid4().hex


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error becomes `{"error": {"code", "message"}}`; only bugs are logged."""
    try:
        check_characters(request)
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
