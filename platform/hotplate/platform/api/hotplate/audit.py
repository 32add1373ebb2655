"""Our own route about who changed what, and who was refused."""

from __future__ import annotations

import re

from aiohttp import web

from hotplate.platform.api.bentocloud.auth import ORGANIZATION_HEADER
from hotplate.platform.api.hotplate.deployments import plain
from hotplate.platform.api.web.requests import access, organization, query_number, query_time
from hotplate.platform.errors import Invalid
from hotplate.platform.store.audit import Audit, AuditFilter

COUNT = 100


class AuditRoutes:
    """An admin sees the lines of their organization, an operator all of them."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/v1/hotplate/audit", self.list_all)]

    async def list_all(self, request: web.Request) -> web.Response:
        """`GET ?since=&until=&actor=&action=&count=&before=`, the newest first. `action` may be the
        first part of some (`deployment`); `before` is the id of the last line of the page before.
        An operator who acts for an organization sees that one's."""
        found = access(request)
        tenant, since = organization(request), query_time(request, "since")
        whose = tenant.name
        if not found.operator:
            # Another one that had this name before left its lines behind.
            since = max(since or tenant.created_at, tenant.created_at)
        elif ORGANIZATION_HEADER not in request.headers:
            whose = ""
        wanted = AuditFilter(
            organization=whose,
            since=since,
            until=query_time(request, "until"),
            actor=request.query.get("actor", ""),
            action=request.query.get("action", ""),
            before=_line_id(request),
        )
        count = query_number(request, "count", COUNT)
        lines, total = await self._audit.run(self._audit.page, wanted, count)
        return web.json_response({"items": plain(lines), "total": total})


def _line_id(request: web.Request) -> int | None:
    text = request.query.get("before", "")
    if not text:
        return None
    if not re.fullmatch("[0-9]{1,15}", text):
        raise Invalid(f"before: {text!r:.80} is not the id of a line")
    return int(text)
