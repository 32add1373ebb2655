"""`GET /deployments/NAME` for who has not signed in: the page to which the link leads that every
`bentoml deploy` prints, without scripts. Who has signed in gets the dashboard's."""

from __future__ import annotations

import shlex
from urllib.parse import quote

from aiohttp import web

from hotplate.machine.access.metrics_check import TOKEN_HEADER
from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.bentocloud.auth import COOKIE, Auth
from hotplate.platform.api.bentocloud.deployments import advertised_origin
from hotplate.platform.api.web import http_errors
from hotplate.platform.api.web.access import LOOKS, check
from hotplate.platform.api.web.requests import Handler, organization
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.dashboard.frames import sign_in_first
from hotplate.platform.dashboard.rendering import page
from hotplate.platform.dashboard.sample_calls import MOUNTED, plain_call, sample_calls
from hotplate.platform.dashboard.visitors import is_from_this_machine
from hotplate.platform.errors import Forbidden, PlatformError, Unauthorized
from hotplate.platform.schema.methods import mounted_paths
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment, Organization, RolloutOutcome

EVENTS = 12
REFRESH_S = 5
PASSING = ("deploying", "terminating")
"""Statuses that another one follows: the page is asked for again meanwhile."""


class DeploymentPages:
    def __init__(
        self,
        store: Store,
        auth: Auth,
        controller: ControllerApi,
        settings: ApiSettings,
        signed_in: Handler,
    ) -> None:
        """`signed_in` answers a browser that has signed in."""
        self._signed_in = signed_in
        self._store = store
        self._auth = auth
        self._controller = controller
        self._settings = settings

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/deployments/{name}", self.deployment)]

    async def deployment(self, request: web.Request) -> web.StreamResponse:
        """A visitor who may not see it learns how to ask, but not whether the name exists."""
        if COOKIE in request.cookies and TOKEN_HEADER not in request.headers:
            return await self._signed_in(request)
        name = request.match_info["name"]
        try:
            tenant = await self._tenant(request)
            found = await self._store.run(self._store.deployments.find, tenant.id, name)
        except PlatformError as error:
            if isinstance(error, Unauthorized) and _is_browser(request):
                return sign_in_first(request)
            status = http_errors.status_of(error)
            return page(
                "problem.html",
                status,
                sentence=str(error),
                asks=isinstance(error, Unauthorized | Forbidden),
                name=shlex.quote(name),
                address=shlex.quote(f"{self._settings.origin(request)}{request.raw_path}"),
                token_header=TOKEN_HEADER,
                sign_in=_sign_in(request),
            )
        return await self._shown(request, found)

    async def _tenant(self, request: web.Request) -> Organization:
        """The organization whose deployments the caller may see. Raises Unauthorized, Forbidden."""
        if TOKEN_HEADER in request.headers:
            check(await self._auth.admit(request), LOOKS)
            return organization(request)
        hosts = request.headers.getall("Host", [])
        if is_from_this_machine(request.remote or "", hosts, request.headers):
            if only := await self._store.run(self._store.identities.only_organization):
                return only
            raise Unauthorized("this installation has more than one organization")
        raise Unauthorized("your browser is not on the machine itself")

    async def _shown(self, request: web.Request, deployment: Deployment) -> web.Response:
        events = await self._store.run(self._store.history.events, deployment.id, EVENTS)
        url = views.deployment_url(deployment, advertised_origin(request, self._settings))
        answering = deployment.serving or deployment.latest
        schema = answering.bento.manifest.get("schema")
        protected = bool(answering.config.get("access_authorization"))
        replicas = self._controller.live(deployment.id)["replicas"]
        failed = deployment.latest.outcome is RolloutOutcome.FAILED
        return page(
            "deployment.html",
            refresh_s=REFRESH_S if deployment.status in PASSING else None,
            deployment=deployment,
            url=url,
            replicas=replicas,
            ready=sum(replica["state"] == "ready" for replica in replicas),
            answering=answering,
            log_tail=deployment.latest.log_tail if failed else (),
            calls=sample_calls(schema, url, protected=protected),
            mounted=[
                plain_call(url, path, protected=protected)
                for path in mounted_paths(schema)[:MOUNTED] or ["/"]
            ],
            protected=protected,
            events=events,
            sign_in=_sign_in(request),
        )


def _is_browser(request: web.Request) -> bool:
    """Whether somebody can be sent to sign in: programs read what they are told instead."""
    is_program = TOKEN_HEADER in request.headers
    return not is_program and "text/html" in request.headers.get("Accept", "")


def _sign_in(request: web.Request) -> str:
    """The sign-in that comes back to this page."""
    return f"/login?next={quote(request.raw_path, safe='', errors='replace')}"
