"""The dashboard's pages as a browser first gets them: a frame in which scripts show what the API
answers. Nobody sees more in them than the API tells them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote

from aiohttp import web

from hotplate.platform.api.bentocloud.auth import COOKIE, ORGANIZATION_HEADER, Auth
from hotplate.platform.api.web import http_errors
from hotplate.platform.api.web.access import ANY, LOOKS, Access, Need, check
from hotplate.platform.api.web.requests import Handler
from hotplate.platform.dashboard.assets import ROOT, assets, serve
from hotplate.platform.dashboard.rendering import HEADERS, templates
from hotplate.platform.errors import NotFound, PlatformError, Unauthorized
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind, MemberRole

_templates = templates()

POLICY = (
    "default-src 'none'; script-src 'self' {import_map}; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

OF_PROGRAMS = ("/api/", "/ws/", "/internal/", ROOT)
"""What paths begin with that people do not open."""

Exists = Callable[[web.Request, Access], Awaitable[object]]


@dataclass(frozen=True)
class PageFrame:
    """One page."""

    path: str
    page: str
    title: str
    """With the parts of the path in braces."""
    module: str
    needs: Need = ANY


_ADMIN = Need(role=MemberRole.ADMIN)
_OPERATOR = Need(operator=True)
_ONE = "/deployments/{name}"

FRAMES = (
    PageFrame("/", "overview", "Overview", "overview"),
    PageFrame("/deployments", "deployments", "Deployments", "deployments", LOOKS),
    PageFrame(_ONE, "deployment", "{name}", "deployment", LOOKS),
    PageFrame(f"{_ONE}/replicas", "replicas", "Replicas of {name}", "replicas", LOOKS),
    PageFrame(f"{_ONE}/logs", "logs", "Logs of {name}", "logs", LOOKS),
    PageFrame(f"{_ONE}/revisions", "revisions", "Revisions of {name}", "revisions", LOOKS),
    PageFrame(f"{_ONE}/why", "why", "Why {name} has so many replicas", "why", LOOKS),
    PageFrame(f"{_ONE}/playground", "playground", "Call {name}", "playground", LOOKS),
    PageFrame(f"{_ONE}/settings", "settings", "Settings of {name}", "settings", LOOKS),
    PageFrame("/codespaces/{name}", "codespace", "Code space {name}", "codespace", LOOKS),
    PageFrame("/bentos", "bentos", "Bentos", "artifacts"),
    PageFrame("/models", "models", "Models", "artifacts"),
    PageFrame("/models/{name}/{version}", "model", "{name}:{version}", "model"),
    PageFrame("/platform", "platform", "Platform", "platform", _OPERATOR),
    PageFrame("/costs", "costs", "Costs", "costs", LOOKS),
    PageFrame("/organization", "organization", "Organization", "organization"),
    PageFrame("/organizations", "organizations", "Organizations", "organizations", _OPERATOR),
    PageFrame("/api_tokens", "tokens", "API tokens", "tokens"),
    PageFrame("/secrets", "secrets", "Secrets", "secrets", Need(role=MemberRole.DEVELOPER)),
    PageFrame("/audit", "audit", "Audit", "audit", _ADMIN),
)

NAVIGATION: tuple[tuple[str, str, Need], ...] = (
    ("/", "Overview", ANY),
    ("/deployments", "Deployments", LOOKS),
    ("/bentos", "Bentos", ANY),
    ("/models", "Models", ANY),
    ("/costs", "Costs", LOOKS),
    ("/platform", "Platform", _OPERATOR),
    ("/organization", "Organization", ANY),
    ("/api_tokens", "API tokens", ANY),
    ("/secrets", "Secrets", Need(role=MemberRole.DEVELOPER)),
    ("/audit", "Audit", _ADMIN),
    ("/organizations", "Organizations", _OPERATOR),
)


class FramePages:
    """All of them but those that another page stands before, such as `/api_tokens?code=`."""

    def __init__(self, store: Store, auth: Auth) -> None:
        self._store = store
        self._auth = auth
        self._frames = {frame.path: frame for frame in FRAMES}
        self._exist: dict[str, Exists] = {
            "/deployments/{name}": self._named_deployment,
            "/codespaces/{name}": self._named_deployment,
            "/models/{name}/{version}": self._named_model,
        }

    def routes(self) -> list[web.RouteDef]:
        """Those of pages that this class alone answers, and of what they are made of."""
        elsewhere = (_ONE, "/api_tokens")
        own = [frame.path for frame in FRAMES if frame.path not in elsewhere]
        files = web.get(ROOT + "{name}", serve)
        return [files, *(web.get(path, self.show) for path in own)]

    async def show(self, request: web.Request) -> web.Response:
        """The page of the request's path. Who has not signed in is asked to, and comes back."""
        resource = request.match_info.route.resource
        frame = self._frames["/" if resource is None else resource.canonical]
        if COOKIE not in request.cookies:
            return sign_in_first(request)
        try:
            acting = _acting(request)
            who = await self._auth.admit(acting)
            check(who, frame.needs)
            await self._check_exists(frame, acting, who)
        except Unauthorized:
            return sign_in_first(request)
        except PlatformError as error:
            return problem(error)
        return _framed(frame, request, who)

    async def _check_exists(self, frame: PageFrame, request: web.Request, who: Access) -> None:
        """Raises NotFound where the page is of something that there is not."""
        for path, exists in self._exist.items():
            if frame.path == path or frame.path.startswith(f"{path}/"):
                await exists(request, who)

    async def _named_deployment(self, request: web.Request, who: Access) -> object:
        name = request.match_info["name"]
        return await self._store.run(self._store.deployments.find, who.user.organization.id, name)

    async def _named_model(self, request: web.Request, who: Access) -> object:
        name, version = request.match_info["name"], request.match_info["version"]
        tenant = who.user.organization.id
        return await self._store.run(self._store.artifacts.get, tenant, Kind.MODEL, name, version)


def _acting(request: web.Request) -> web.Request:
    """The request, for the organization that its page's address names."""
    named = request.query.get("organization", "")
    if not named:
        return request
    headers = request.headers.copy()
    headers[ORGANIZATION_HEADER] = named
    return request.clone(headers=headers)


def sign_in_first(request: web.Request) -> web.Response:
    """The way to the sign-in, and from there back to this page."""
    where = f"/login?next={quote(request.path_qs, safe='', errors='replace')}"
    headers = {"Location": where, "Cache-Control": "no-store"}
    return web.Response(status=303, headers=headers)


@web.middleware
async def show_lost(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A browser that asks for a page that there is not gets one with the way back."""
    answer = await handler(request)
    is_page = request.method == "GET" and not request.path.startswith(OF_PROGRAMS)
    is_browser = "text/html" in request.headers.get("Accept", "")
    if answer.status == 404 and is_page and is_browser and answer.content_type != "text/html":
        return problem(NotFound(f"there is no page {request.path!r:.200}"))
    return answer


def problem(error: PlatformError) -> web.Response:
    """A page that says what is wrong, and has the way back."""
    status = http_errors.status_of(error)
    is_lost = isinstance(error, NotFound)
    text = _templates.get_template("lost.html").render(sentence=str(error), is_lost=is_lost)
    return web.Response(
        body=text.encode(errors="replace"),
        status=status,
        content_type="text/html",
        charset="utf-8",
        headers=HEADERS,
    )


def _framed(frame: PageFrame, request: web.Request, who: Access) -> web.Response:
    files = assets()
    named = request.query.get("organization", "")
    text = _templates.get_template("page.html").render(
        page=frame.page,
        title=frame.title.format(**request.match_info),
        params=dict(request.match_info),
        who=who,
        organization=named,
        here="/" + request.path.split("/")[1],
        navigation=[(path, text) for path, text, needs in NAVIGATION if _may(who, needs)],
        files=files,
        start=files.modules["hotplate/start"].path,
        module=f"hotplate/pages/{frame.module}",
        worker=files.modules["hotplate/stream"].path,
        theme=files.modules["hotplate/theme"].path,
        preload=files.needed("hotplate/start", f"hotplate/pages/{frame.module}"),
    )
    headers = HEADERS | {
        "Content-Security-Policy": POLICY.format(import_map=files.import_map_digest),
        # Without a referrer a browser does not say from whose page a form comes.
        "Referrer-Policy": "same-origin",
    }
    return web.Response(
        body=text.encode(errors="replace"),
        content_type="text/html",
        charset="utf-8",
        headers=headers,
    )


def _may(who: Access, needs: Need) -> bool:
    try:
        check(who, needs)
    except PlatformError:
        return False
    return True
