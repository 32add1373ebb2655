"""Our own route about what deployments took, and what that cost."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime

from aiohttp import web

from hotplate.platform.api.bentocloud.auth import ORGANIZATION_HEADER
from hotplate.platform.api.hotplate.series import query_seconds
from hotplate.platform.api.web.requests import access, organization
from hotplate.platform.errors import Invalid
from hotplate.platform.series.costs import BY, COLUMNS, items, rows, sum_of
from hotplate.platform.series.recorder import SeriesRecorder
from hotplate.platform.store.costs import Cost
from hotplate.platform.store.parts import Store

DAY_S = 86_400.0
HOUR_S = 3600


class CostRoutes:
    """An organization sees its own, an operator who names none all."""

    def __init__(self, store: Store, recorder: SeriesRecorder) -> None:
        self._store = store
        self._recorder = recorder

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/v1/hotplate/costs", self.list_all)]

    async def list_all(self, request: web.Request) -> web.Response:
        """`GET ?from=&to=&by=organization|deployment|day[&format=csv]`: whole hours, from that in
        which `from` lies to that before which `to` does, and the `sum` of all; by default those of
        the last day."""
        now = datetime.now(UTC).timestamp()
        end = query_seconds(request, "to", now)
        begin = query_seconds(request, "from", max(0.0, end - DAY_S))
        by = request.query.get("by") or BY[0]
        as_csv = request.query.get("format") or "json"
        if begin >= end:
            raise Invalid(f"from: {begin:.0f} is not before to ({end:.0f}); both are Unix seconds")
        if by not in BY:
            raise Invalid(f"by: {by!r:.80} is none of {', '.join(BY)}")
        if as_csv not in ("json", "csv"):
            raise Invalid(f"format: {as_csv!r:.80} is none of json, csv")
        costs = await self._between(request, begin - begin % HOUR_S, end)
        found = items(costs, by)
        if as_csv == "csv":
            return _file(found)
        answer = {"items": found, "total": len(found), "sum": sum_of(costs)}
        return web.json_response(answer)

    async def _between(self, request: web.Request, begin: float, end: float) -> list[Cost]:
        tenants = [organization(request)]
        if access(request).operator and ORGANIZATION_HEADER not in request.headers:
            tenants = await self._store.run(self._store.organizations.all)
        names = {each.id: each.name for each in tenants}
        # What is written while the store is asked may be in neither, and is in the next answer.
        unwritten = list(self._recorder.costs(names))
        found = await self._store.run(self._store.costs.between, begin, end, list(names))
        return found + [
            Cost(names[organization_id], deployment, hour, taken)
            for (organization_id, deployment, hour), taken in unwritten
            if begin <= hour < end
        ]


def _file(found: list[dict[str, object]]) -> web.Response:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows(found)])
    return web.Response(
        text=text.getvalue(),
        content_type="text/csv",
        headers={"Content-Disposition": 'attachment; filename="costs.csv"'},
    )
