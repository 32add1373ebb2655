"""`GET /api/v1/hotplate/stream?topics=`: what the API shows, told as it changes.

Each reader has a `Cursor` of its own over channels that it shares with all who may see the same.
It is told of what is new since it has taken the last; while it takes nothing, nothing is kept for
it. `streaming/` fills the channels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from aiohttp import web

from hotplate.machine.access.metrics_check import TOKEN_HEADER
from hotplate.platform.api.bentocloud.auth import COOKIE, Auth
from hotplate.platform.api.bentocloud.deployments import advertised_origin
from hotplate.platform.api.hotplate.deployments import DeploymentStatusRoutes
from hotplate.platform.api.hotplate.overview import OverviewRoutes
from hotplate.platform.api.hotplate.streaming.hub import LINGER_S, Audience, LiveHub, TopicSource
from hotplate.platform.api.hotplate.streaming.logs import FollowedLog
from hotplate.platform.api.hotplate.streaming.overviews import HappenedEvents, PlatformOverview
from hotplate.platform.api.hotplate.streaming.reader import Reader
from hotplate.platform.api.hotplate.streaming.tables import DeploymentDetail, DeploymentTable
from hotplate.platform.api.web.access import OVERSEES, check
from hotplate.platform.api.web.requests import access, organization
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.errors import Forbidden, NotFound, PlatformError, StoreFailed
from hotplate.platform.live.cursor import Cursor
from hotplate.platform.live.topics import (
    DEPLOYMENT,
    DEPLOYMENTS,
    EVENTS,
    LOGS,
    PLATFORM,
    Topic,
    topics_of,
)
from hotplate.platform.store.deployments import Deployments

PATH = "/api/v1/hotplate/stream"
RECONNECT_MS = 1000
TRUSTED_S = 2.0
"""How long what was found of a reader is good for others of the same token or sign-in."""
HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class StreamRoutes:
    def __init__(
        self,
        deployments: Deployments,
        auth: Auth,
        controller: ControllerApi,
        status: DeploymentStatusRoutes,
        overview: OverviewRoutes,
        settings: ApiSettings,
        linger_s: float = LINGER_S,
    ) -> None:
        """`linger_s` is how long what nobody follows any more is watched."""
        self._deployments = deployments
        self._auth = auth
        self._controller = controller
        self._status = status
        self._overview = overview
        self._settings = settings
        self._may_see: dict[tuple[object, ...], float] = {}
        """Until when it need not be looked whether readers may see it, of a moment ago."""
        self.hub = LiveHub(self._source, linger_s)

    def add_to(self, app: web.Application) -> None:
        async def close(_: web.Application) -> None:
            await self.hub.close()

        app.add_routes([web.get(PATH, self.stream, allow_head=False)])
        app.on_shutdown.append(close)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Until the reader leaves, or may not see it any longer. Raises Invalid and Forbidden."""
        topics = topics_of(request.query.get("topics", ""))
        _check_topics(request, topics)
        origin = advertised_origin(request, self._settings)
        audience = Audience(organization(request), origin, operator=access(request).operator)
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        await response.write(b"retry: %d\n\n" % RECONNECT_MS)
        wake = asyncio.Event()
        with self.hub.followed(topics, audience, wake) as channels:
            last_id = request.headers.get("Last-Event-ID", "") or request.query.get("last_id", "")
            reader = Reader(response, Cursor(self.hub.boot, channels, last_id), wake)
            await reader.tell(
                lambda: self._refusal(request, topics, audience), lambda: self.hub.closing
            )
        return response

    async def _refusal(
        self, request: web.Request, topics: Sequence[Topic], audience: Audience
    ) -> PlatformError | None:
        """Why the reader may not see it any longer; None = it may."""
        now = asyncio.get_running_loop().time()
        secrets = (request.headers.get(TOKEN_HEADER), request.cookies.get(COOKIE))
        key = (*secrets, audience.organization.id, audience.operator, _oversees(topics))
        self._may_see = {each: until for each, until in self._may_see.items() if until > now}
        if key in self._may_see:
            return None
        try:
            await self._auth.check_again(request)
            _check_topics(request, topics)
            if organization(request).id != audience.organization.id:
                raise NotFound(
                    f"organization {audience.organization.name!r} of before does not exist"
                )
            if audience.operator and not access(request).operator:
                raise Forbidden("you are no operator of this installation any longer")
        except StoreFailed:  # which says nothing of the reader
            return None
        except PlatformError as error:
            return error
        self._may_see[key] = now + TRUSTED_S
        return None

    def _source(
        self, topic: Topic, audience: Audience, next_number: Callable[[], int]
    ) -> TopicSource:
        deployments, changes = self._deployments, self._controller.changes
        of_all = (deployments, self._status, changes, audience, next_number)
        if topic.kind == DEPLOYMENTS:
            return DeploymentTable(*of_all)
        if topic.kind == DEPLOYMENT:
            return DeploymentDetail(topic.name, *of_all)
        if topic.kind == LOGS:
            return FollowedLog(topic, deployments, self._controller, audience, next_number)
        if topic.kind == EVENTS:
            return HappenedEvents(self._overview, changes, audience, next_number)
        return PlatformOverview(self._overview, next_number)


def _check_topics(request: web.Request, topics: Sequence[Topic]) -> None:
    """Raises Forbidden."""
    if _oversees(topics):
        check(access(request), OVERSEES)


def _oversees(topics: Sequence[Topic]) -> bool:
    return any(topic.kind == PLATFORM for topic in topics)
