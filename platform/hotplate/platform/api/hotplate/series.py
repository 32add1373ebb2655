"""Our own routes about what deployments did: series of figures, step by step."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
from collections.abc import Callable, Collection, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from hotplate.platform.api.bentocloud.auth import ORGANIZATION_HEADER
from hotplate.platform.api.hotplate.shared_answers import SharedAnswers
from hotplate.platform.api.web.requests import access, organization
from hotplate.platform.errors import Invalid, NotFound
from hotplate.platform.series.columns import columns
from hotplate.platform.series.levels import Grid, grid
from hotplate.platform.series.points import Point
from hotplate.platform.series.reading import read, tracks
from hotplate.platform.series.recorder import SeriesRecorder
from hotplate.platform.store.parts import Store
from hotplate.platform.store.series import Block, Series

MAIN = "main"
DEFAULT_S = 3600.0
"""Without `from` the answer begins so long before its end."""
LEVEL = 4
"""Of compression: to a tenth."""
LATEST = 253_402_300_800.0
"""The end of the year 9999."""


class SeriesRoutes:
    """Series of a deployment, and of all that the caller may see."""

    def __init__(self, store: Store, recorder: SeriesRecorder) -> None:
        self._store = store
        self._recorder = recorder
        self._shared = SharedAnswers()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/v1/hotplate/deployments/{name}/series", self.of_deployment),
            web.get("/api/v1/hotplate/series", self.of_all),
        ]

    async def of_deployment(self, request: web.Request) -> web.Response:
        """`GET …/series?from=&to=&step=&version=`: of one version of its canary, or of all."""
        asked_grid(request)  # what is wrong with the query is said first
        series, name = self._store.series, request.match_info["name"]
        subjects = await series.run(series.subjects, organization(request).id, name)
        asked, now = asked_grid(request)
        chosen = _chosen(name, subjects, request.query.get("version", ""))
        since = {id_: at.timestamp() for id_, at in chosen}
        unwritten = self._recorder.unwritten
        return await self._answer(request, series, asked, since, unwritten, now)

    async def of_all(self, request: web.Request) -> web.Response:
        """`GET /api/v1/hotplate/series?from=&to=&step=`: of the caller's organization; of all for
        an operator who names none."""
        asked_grid(request)
        tenants = [organization(request)]
        if access(request).operator and ORGANIZATION_HEADER not in request.headers:
            tenants = await self._store.run(self._store.organizations.all)
        asked, now = asked_grid(request)
        since = {each.id: each.created_at.timestamp() for each in tenants}
        unwritten = self._recorder.unwritten_of
        return await self._answer(
            request, self._store.organization_series, asked, since, unwritten, now
        )

    async def _answer(
        self,
        request: web.Request,
        series: Series,
        asked: Grid,
        since: Mapping[int, float],
        unwritten: Callable[[int], list[tuple[int, Point]]],
        now: float,
    ) -> web.Response:
        """`unwritten` says what is not in the store yet of each subject of `since`."""

        def begin() -> Coroutine[Any, Any, bytes]:
            # Of this moment: a step that begins meanwhile is beyond what is asked for.
            points = {key: unwritten(key) for key in since}

            def answered(blocks: list[Block]) -> bytes:
                found = columns(asked, tracks(blocks, points, since, asked), now)
                return gzip.compress(json.dumps(found).encode(), LEVEL)

            async def made() -> bytes:
                blocks = await self._store.run(read, series, list(since), asked, now)
                # Of thousands of points: others have their turns meanwhile.
                return await asyncio.to_thread(answered, blocks)

            return made()

        # Pages that show the same ask at the same moments.
        packed = await self._shared.get((id(series), asked, *sorted(since.items())), begin)
        headers = {"Vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            packed = gzip.decompress(packed)
        else:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=packed, content_type="application/json", headers=headers)


def asked_grid(request: web.Request) -> tuple[Grid, float]:
    """The steps that the query asks for, and the time now. Raises Invalid."""
    now = datetime.now(UTC).timestamp()
    end = query_seconds(request, "to", now)
    begin = query_seconds(request, "from", max(0.0, end - DEFAULT_S))
    step_s = query_seconds(request, "step", 0.0)
    if begin >= end:
        raise Invalid(f"from: {begin:.0f} is not before to ({end:.0f}); both are Unix seconds")
    if "step" in request.query and request.query["step"] and step_s <= 0:
        raise Invalid(f"step: {step_s:g} is not more than 0 seconds; leave it out for the shortest")
    return grid(begin, end, step_s, now), now


def query_seconds(request: web.Request, name: str, default: float) -> float:
    """Seconds of the query, of a moment since 1970. Raises Invalid."""
    text = request.query.get(name, "")
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LATEST:
        raise Invalid(f"{name}: {text!r:.80} is no number of seconds from 0 to {LATEST:.0f}")
    return seconds


def _chosen(
    name: str, subjects: Mapping[str, tuple[int, datetime]], version: str
) -> Collection[tuple[int, datetime]]:
    """The deployment and the versions of its canary, as far as they are asked for. Raises
    NotFound."""
    if not version:
        return subjects.values()
    found = subjects.get("" if version == MAIN else version)
    if found is None:
        raise NotFound(f"deployment {name!r} has no version {version!r:.80}")
    return (found,)
