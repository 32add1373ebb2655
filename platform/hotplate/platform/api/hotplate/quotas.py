"""Our own routes about quotas: what organizations may have, and what they have."""

from __future__ import annotations

import math
from typing import Any

from aiohttp import web

from hotplate.autoscaler.sharing.allocation import Quota
from hotplate.autoscaler.sharing.amounts import Amounts
from hotplate.platform.api.web.etags import ConditionalChanges, tagged
from hotplate.platform.api.web.requests import access, body, caller
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.errors import Invalid, NotFound
from hotplate.platform.spec.fields import Fields, suggestion
from hotplate.platform.store.quotas import LIMITS, Quotas

WEIGHT_MOST = 1e6
"""Weights are compared with each other, so a larger one says nothing that this does not."""

PRIORITY_LAST = 7


class QuotaRoutes:
    """Everyone may see the quota of their own organization; the operator sees and sets all."""

    def __init__(self, quotas: Quotas, controller: ControllerApi) -> None:
        self._quotas = quotas
        self._controller = controller
        self._changes = ConditionalChanges()

    def routes(self) -> list[web.RouteDef]:
        root = "/api/v1/hotplate/quotas"
        return [
            web.get(root, self.list_all),
            web.get(root + "/{organization}", self.get),
            web.put(root + "/{organization}", self.change),
        ]

    async def list_all(self, request: web.Request) -> web.Response:
        """`GET`: the quotas that the caller may see, with what each organization uses now."""
        names = [caller(request).organization.name]
        if access(request).operator:
            names = await self._quotas.run(self._quotas.organizations)
        return web.json_response([await self._shown(name) for name in names])

    async def get(self, request: web.Request) -> web.Response:
        """`GET /{organization}`: its quota and what it uses now. Raises NotFound, for another's as
        for one that does not exist."""
        name = request.match_info["organization"]
        if name != caller(request).organization.name and not access(request).operator:
            raise NotFound(f"organization {name!r:.80} does not exist")
        return await self._answer(name)

    async def change(self, request: web.Request) -> web.Response:
        """Members that are not there stay as they are; null = unlimited."""
        name = request.match_info["organization"]
        changes = _changes(await body(request))
        async with self._changes.one(request, lambda: self._state(name)):
            await self._quotas.run(self._quotas.set, name, changes)
        self._controller.quotas_changed()
        return await self._answer(name)

    async def _answer(self, name: str) -> web.Response:
        shown = await self._shown(name)
        return tagged(shown, _changeable(shown))

    async def _state(self, name: str) -> dict[str, Any]:
        return _changeable(await self._shown(name))

    async def _shown(self, name: str) -> dict[str, Any]:
        quota = await self._quotas.run(self._quotas.get, name)
        return quota_json(name, quota, self._controller.usage(name))


def quota_json(organization: str, quota: Quota, used: Amounts) -> dict[str, Any]:
    """`limit` null = unlimited. `used` has no standby: what is ready and empty is not used."""
    limits = quota.limit._asdict() | {"standby": quota.standby}
    return {
        "organization": organization,
        "weight": quota.weight,
        "priority": quota.priority,
        "limit": {name: limits[name] if math.isfinite(limits[name]) else None for name in LIMITS},
        "used": used._asdict(),
    }


def _changeable(shown: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in shown.items() if key != "used"}


def _changes(fields: Fields) -> dict[str, float]:
    changes: dict[str, float] = {}
    for name, value in fields.mapping("limit").items():
        if name not in LIMITS:
            raise Invalid(f"limit.{name}: there is no such limit{suggestion(name, LIMITS)}")
        changes[name] = math.inf if value is None else _number(f"limit.{name}", value)
    if fields.has("weight"):
        changes["weight"] = _weight(fields.amount("weight"))
    if fields.has("priority"):
        changes["priority"] = _priority(fields.number("priority"))
    if not changes:
        known = ", ".join(LIMITS)
        raise Invalid(f"body: it changes nothing; give weight, priority or limit (of {known})")
    return changes


def _number(path: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise Invalid(f"{path}: {value!r:.80} is not a number from 0 on, or null for unlimited")
    return float(value)


def _weight(value: float | None) -> float:
    if value is None or value > WEIGHT_MOST:
        raise Invalid(f"weight: {value!r} is above {WEIGHT_MOST:g}")
    return value


def _priority(value: int | None) -> int:
    if value is None or value > PRIORITY_LAST:
        raise Invalid(f"priority: {value!r} is not 0 (first) to {PRIORITY_LAST} (last)")
    return value
