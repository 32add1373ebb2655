"""`POST /api/v1/hotplate/deployments/NAME/call`: a call of a deployment for a page of ours.

Deployments are other origins, which a page may not call. So the call is described to us, and we
make it at the gateway, where it waits its turn as all do. What the deployment answers is its
author's: of its header fields only those come back that a browser does not act upon.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from functools import lru_cache

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    TCPConnector,
    hdrs,
    web,
)
from yarl import URL

from hotplate.machine.access.metrics_check import TOKEN_HEADER
from hotplate.platform.api.bentocloud.auth import COOKIE
from hotplate.platform.api.bentocloud.deployments import named_deployment
from hotplate.platform.api.hotplate.call_forms import CallForm
from hotplate.platform.api.web.requests import body
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.controller.planning.addresses import CallTarget
from hotplate.platform.errors import Conflict, NotCallable, PlatformError
from hotplate.platform.spec.deployment_call import (
    CONTENT_TYPE,
    DeploymentCall,
    body_of,
    deployment_call,
)
from hotplate.platform.store.deployments import Deployments
from hotplate.platform.store.records import Deployment, DesiredState

CONNECT_S = 5.0
LOOK_S = 1.0
"""How often it is looked whether the caller still waits for the first byte."""
BY_DEPLOYMENT = "Hotplate-Deployment"
"""Names the deployment in an answer that is its own, and not the platform's."""
LOCATION = "Hotplate-Location"
"""Where a redirection leads, which no browser follows."""
SHOWN = frozenset(
    (
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-length",
        "content-type",
        "date",
        "etag",
        "hotplate-version",
        "last-modified",
        "retry-after",
        "server",
        "x-request-id",
    )
)
SHOWN_TOO = "x-bentoml-"
SAFELY = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}
"""Whatever it is, it is shown by our page and runs nowhere."""
UNSAID = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Fields that the client would add by itself."""


class CallRoutes:
    def __init__(self, deployments: Deployments, controller: ControllerApi) -> None:
        self._deployments = deployments
        self._controller = controller
        self._session: ClientSession | None = None

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/api/v1/hotplate/deployments/{name}/call", self.call)]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(self, request: web.Request) -> web.StreamResponse:
        """With `{"method", "path", "headers", "body", "version"}`, or a form whose first fields are
        named so. Raises NotFound, Conflict, Invalid, NotCallable."""
        deployment = await named_deployment(self._deployments, request)
        if deployment.wanted is not DesiredState.RUNNING:
            raise Conflict(
                f"deployment {deployment.name!r} is terminated, and nobody can call it; start it"
            )
        secrets = (request.headers.get(TOKEN_HEADER, ""), request.cookies.get(COOKIE, ""))
        if request.content_type.startswith("multipart/"):
            form = await CallForm.begun(request, secrets)
            return await self._passed(request, deployment, form.call, form.body(), form.type)
        fields = await body(request)
        described = deployment_call(fields, secrets)
        content, content_type = body_of(fields.value("body"))
        return await self._passed(request, deployment, described, content, content_type)

    async def _passed(
        self,
        request: web.Request,
        deployment: Deployment,
        call: DeploymentCall,
        content: bytes | AsyncIterator[bytes] | None,
        content_type: str,
    ) -> web.StreamResponse:
        target = self._controller.call_target(deployment)
        sending = asyncio.create_task(
            self._http().request(
                call.method,
                URL(target.url + call.path, encoded=True),
                headers=_headers(call, target, content_type, protected=_is_protected(deployment)),
                data=content,
                allow_redirects=False,
                skip_auto_headers=UNSAID,
                ssl=_believing(target.certificate) if target.certificate else True,
            )
        )
        response: web.StreamResponse | None = None
        try:
            async with await _awaited(sending, request) as answer:
                response = _begun(answer, call, deployment)
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
        except (ClientError, TimeoutError) as error:
            if response is not None:  # the caller has to see that this is not all
                raise ConnectionResetError(f"the deployment's answer was cut: {error!r}") from error
            if isinstance(error.__cause__, PlatformError | web.RequestPayloadError):
                raise error.__cause__ from error  # of the form that was being sent on
            raise NotCallable(
                f"deployment {deployment.name!r} cannot be called now: its gateway does not "
                f"answer ({error!r:.200}); try again in a moment"
            ) from error
        return response

    def _http(self) -> ClientSession:
        if self._session is None:
            limit = ClientTimeout(total=None, sock_connect=CONNECT_S)
            self._session = ClientSession(
                timeout=limit,
                connector=TCPConnector(limit=0, force_close=True),
                auto_decompress=False,
            )
        return self._session


async def _awaited(sending: asyncio.Task[ClientResponse], request: web.Request) -> ClientResponse:
    """The answer's head. Raises ConnectionResetError once the caller has left: the request leaves
    the gateway's queue then."""
    try:
        while not sending.done():
            await asyncio.wait((sending,), timeout=LOOK_S)
            left = request.transport is None or request.transport.is_closing()
            if left and not sending.done():
                raise ConnectionResetError("the caller of a deployment has left")
        return sending.result()
    except BaseException:
        sending.cancel()
        sending.add_done_callback(_close)  # it may have been answered meanwhile
        raise


def _close(sending: asyncio.Task[ClientResponse]) -> None:
    """Lets an answer go that nobody takes."""
    if not sending.cancelled() and sending.exception() is None:
        sending.result().close()


def _begun(
    answer: ClientResponse, call: DeploymentCall, deployment: Deployment
) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in answer.headers.items():
        if name.lower() in SHOWN or name.lower().startswith(SHOWN_TOO):
            response.headers.add(name, value)
    if call.method == "HEAD":  # its length is of a body that does not come
        response.headers.popall(hdrs.CONTENT_LENGTH, None)
    if location := answer.headers.get(hdrs.LOCATION):
        response.headers[LOCATION] = location
    response.headers.update(SAFELY | {BY_DEPLOYMENT: deployment.name})
    return response


def _headers(
    call: DeploymentCall, target: CallTarget, content_type: str, *, protected: bool
) -> list[tuple[str, str]]:
    headers = list(call.headers)
    if content_type and not call.header(CONTENT_TYPE):
        headers.append(("Content-Type", content_type))
    if call.version:
        headers.append(("Hotplate-Version", call.version))
    if target.host:
        headers.append(("Host", target.host))
    if protected and target.key:
        headers = [each for each in headers if each[0].lower() != "authorization"]
        headers.append(("Authorization", f"Bearer {target.key}"))
    return headers


def _is_protected(deployment: Deployment) -> bool:
    revisions = (deployment.latest, deployment.serving or deployment.latest)
    return any(revision.config.get("access_authorization") for revision in revisions)


@lru_cache(maxsize=1)
def _believing(certificate: str) -> ssl.SSLContext:
    """Our own gateway's certificate, whatever names it is for."""
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context
