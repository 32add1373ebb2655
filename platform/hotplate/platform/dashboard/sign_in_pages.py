"""Signing in by a browser, and approving `bentoml cloud login`. No page here needs scripts."""

from __future__ import annotations

from urllib.parse import quote

from aiohttp import web

from hotplate.platform.api.bentocloud.auth import COOKIE, Auth
from hotplate.platform.api.web import http_errors
from hotplate.platform.api.web.access import Access, lacking
from hotplate.platform.api.web.requests import Handler
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.dashboard.rendering import form_page
from hotplate.platform.errors import Forbidden, PlatformError, TooManyTries, Unauthorized
from hotplate.platform.spec.scopes import API, OF_API, allows
from hotplate.platform.store.sign_ins import CODE_SHOWN, SIGN_IN_S, SignIns
from hotplate.platform.store.tokens import TokenDraft


class SignInPages:
    """`/login`, `/logout`, and `/api_tokens?code=`, where a member answers a login."""

    def __init__(
        self, sign_ins: SignIns, auth: Auth, settings: ApiSettings, tokens_page: Handler
    ) -> None:
        """`tokens_page` answers `/api_tokens` where there is nothing to approve."""
        self._tokens_page = tokens_page
        self._sign_ins = sign_ins
        self._auth = auth
        self._settings = settings

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/login", self.login),
            web.post("/login", self.sign_in),
            web.post("/logout", self.sign_out),
            *(web.get(path, self.tokens) for path in ("/api_tokens", "/api-token")),
            *(web.post(path, self.answer) for path in ("/api_tokens", "/api-token")),
        ]

    async def login(self, request: web.Request) -> web.Response:
        """A form for a token; of a link the button that uses it, since chat programs fetch links
        ahead; who is signed in, for somebody who is."""
        link, then = request.query.get("link", ""), _safe(request.query.get("next", ""))
        return form_page("login.html", link=link, then=then, who=await self._who(request), why="")

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """`token` or `link` of the form, and `next`: where to go then."""
        form = await request.post()
        link, token, then = (_text(form.get(name)) for name in ("link", "token", "next"))
        try:
            secret = await self._signed_in(request, link, token)
        except PlatformError as error:
            if isinstance(error, Forbidden):
                self._auth.note(request, error)
            return _refused(error, _safe(then))
        response = web.Response(status=303, headers={"Location": _safe(then) or "/"})
        response.set_cookie(
            COOKIE,
            secret,
            max_age=int(SIGN_IN_S),
            path="/",
            httponly=True,
            samesite="Lax",
            secure=self._settings.origin(request).startswith("https:"),
        )
        return response

    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        """Ends the sign-in for good: its cookie is worth nothing wherever it may be."""
        await self._auth.admit(request)
        await self._sign_ins.run(self._sign_ins.end, request.cookies.get(COOKIE, ""))
        response = web.Response(status=303, headers={"Location": "/login"})
        response.del_cookie(COOKIE, path="/")
        return response

    async def tokens(self, request: web.Request) -> web.StreamResponse:
        """Whether the login with this code is to be approved; without one, the tokens."""
        if request.path == "/api_tokens" and not request.query.get("code", ""):
            return await self._tokens_page(request)
        who, code = await self._who(request), request.query.get("code", "")
        if who is None:
            here = f"{request.path}?code={quote(code, safe='')}" if code else request.path
            where = f"/login?next={quote(here, safe='')}"
            return web.Response(status=303, headers={"Location": where})
        if not code:
            return form_page("approval.html", who=who, code="", shown="", state="none")
        asked = code.isascii() and await self._sign_ins.run(self._sign_ins.is_asked, code)
        return self._approval(who, code, "asked" if asked else "unknown")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """`code` and `answer` (approve or deny) of the form."""
        form = await request.post()
        code, given = _text(form.get("code")), _text(form.get("answer"))
        who: Access | None = None
        try:
            who = await self._auth.admit(request)
            await self._answered(request, who, code, approved=given == "approve")
        except (Unauthorized, TooManyTries) as refusal:
            return _refused(refusal, who=who)
        except Forbidden as refusal:
            self._auth.note(request, refusal)
            return _refused(refusal, who=who)
        return self._approval(who, code, "approved" if given == "approve" else "denied")

    async def _answered(
        self, request: web.Request, who: Access, code: str, *, approved: bool
    ) -> None:
        """Raises Forbidden, Unauthorized, TooManyTries."""
        draft = _draft(who, code) if approved else None
        try:
            if draft is not None:
                await self._sign_ins.run(self._sign_ins.approve, code, who.user, draft)
            else:
                await self._sign_ins.run(self._sign_ins.deny, code)
        except Unauthorized as error:
            self._auth.refuse(request, error)

    def _approval(self, who: Access, code: str, state: str) -> web.Response:
        status = 404 if state == "unknown" else 200
        shown = code[:CODE_SHOWN]
        return form_page("approval.html", status, who=who, code=code, shown=shown, state=state)

    async def _signed_in(self, request: web.Request, link: str, token: str) -> str:
        """The secret of a new sign-in. Raises Unauthorized, TooManyTries."""
        if link:
            try:
                if not link.isascii():
                    raise Unauthorized("the link is unknown; ask for a new one")
                return await self._sign_ins.run(self._sign_ins.follow_link, link)
            except Unauthorized as refusal:
                self._auth.refuse(request, refusal)
        found = await self._auth.token(token.strip()) if token.strip() else None
        if found is None:
            self._auth.refuse(request, Unauthorized("the token is unknown or has expired"))
        if not any(allows(found.scopes, scope) for scope in OF_API):
            raise Forbidden(f"token {found.name!r} is not for the API; use one of the scope 'api'")
        return await self._sign_ins.run(self._sign_ins.by_token, found)

    async def _who(self, request: web.Request) -> Access | None:
        """Who has signed in; None = nobody."""
        if COOKIE not in request.cookies:
            return None
        try:
            return await self._auth.admit(request)
        except PlatformError:
            return None


def _refused(refusal: PlatformError, then: str = "", who: Access | None = None) -> web.Response:
    status, why = http_errors.status_of(refusal), str(refusal)
    page = form_page("login.html", status, link="", then=then, who=who, why=why)
    if refusal.retry_after_s is not None:
        page.headers["Retry-After"] = str(refusal.retry_after_s)
    return page


def _draft(who: Access, code: str) -> TokenDraft:
    """The token of a login: it may what the sign-in may. Raises Forbidden."""
    if who.is_organizations:
        raise Forbidden(
            "this sign-in is by a token of the organization, which makes no token of a person; "
            "sign in by a link or a token of your own"
        )
    if missing := lacking(who):
        raise Forbidden(
            f"this sign-in lacks {', '.join(missing)}, so it cannot approve a login, whose token "
            "has all of 'api'; sign in by a link, or by a token of the scope 'api'"
        )
    name, about = f"login-{code[:CODE_SHOWN]}", "made by 'bentoml cloud login' in a browser"
    return TokenDraft(name, (API,), about, operator=who.operator)


def _safe(path: str) -> str:
    """A page of ours to go to; empty for anything else."""
    plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if path.startswith("/") and not path.startswith("//") and plain else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
