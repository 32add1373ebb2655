"""What an operator sets about standbys while the platform runs, and what is shown of them.

What is set here is kept in the store and goes before environment and file, until it is reset.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from math import isfinite
from typing import Any

from aiohttp import web

from hotplate.autoscaler.sharing.allocation import Quota
from hotplate.deploy.standbys import Standbys, StandbySettings, StandbyView
from hotplate.platform.api.web.etags import ConditionalChanges, tagged
from hotplate.platform.api.web.requests import body
from hotplate.platform.errors import BadSetting, Invalid
from hotplate.platform.settings import overlaid
from hotplate.platform.spec.fields import Fields
from hotplate.platform.store.learnt import LearntValues
from hotplate.platform.store.organizations import Organizations
from hotplate.platform.store.records import Organization

KEY = "standby"
"""Under which it is kept in the store."""
PATH = "/api/v1/hotplate/standby"

log = logging.getLogger("hotplate.standby")


class StandbyRoutes:
    """Standby settings that an operator makes go before those of environment and file."""

    def __init__(
        self,
        learnt: LearntValues,
        organizations: Organizations,
        standbys: Standbys,
        configured: StandbySettings,
        machine_bytes: int,
    ) -> None:
        """`configured` is by environment and file; `machine_bytes` is there for all replicas."""
        self._learnt = learnt
        self._organizations = organizations
        self._standbys = standbys
        self._configured = configured
        self._machine_bytes = machine_bytes
        self._stored: Mapping[str, Any] = {}
        self._changes = ConditionalChanges()

    def routes(self) -> list[web.RouteDef]:
        return [web.get(PATH, self.show), web.put(PATH, self.put)]

    async def recall(self) -> None:
        """Follow what was set before the platform was started anew."""
        stored = await self._learnt.run(self._learnt.get, KEY)
        try:
            self._follow(stored or {})
        except Invalid as error:  # another version of us has written it
            log.warning(
                "the standby settings that were made with a command are not used: %s", error
            )

    async def show(self, request: web.Request) -> web.Response:
        """Settings, and per environment and set of GPUs what there is and why."""
        settings = self._standbys.settings
        tenants = await self._organizations.run(self._organizations.all)
        views = [_named(view, tenants) for view in self._standbys.views()]
        return tagged(
            {
                **(state := await self._state()),
                "budget_bytes": settings.budget_bytes(self._machine_bytes),
                "memory_bytes": self._standbys.memory_bytes,
                "pools": [asdict(view) for view in views],
            },
            state,
        )

    async def put(self, request: web.Request) -> web.Response:
        """Set `settings` (an object, some or all of them) beside what was set; null = reset."""
        given = await body(request)
        settings = given.mapping("settings")
        async with self._changes.one(request, self._state):
            await self._keep(given, settings)
        return await self.show(request)

    async def _state(self) -> dict[str, Any]:
        return {"settings": asdict(self._standbys.settings), "set": sorted(self._stored)}

    async def _keep(self, given: Fields, settings: Mapping[str, Any]) -> None:
        stored = {**self._stored, **settings} if given.has("settings") else {}
        before = self._stored
        self._follow(stored)
        try:
            await self._learnt.run(self._learnt.put, KEY, stored, "standby.update")
        except BaseException:  # also when cancelled: what is not stored is not followed
            self._follow(before)
            raise

    def allow(self, quotas: Mapping[str, Quota]) -> None:
        """Hold to what organizations may have standby."""
        self._standbys.allow(
            {name: int(quota.standby) for name, quota in quotas.items() if isfinite(quota.standby)}
        )

    def _follow(self, stored: Mapping[str, Any]) -> None:
        """Raises Invalid, with everything as before."""
        try:
            settings = overlaid(self._configured, stored, "settings")
        except BadSetting as error:
            raise Invalid(str(error)) from error
        self._stored = stored
        self._standbys.set(settings)


def _named(view: StandbyView, tenants: Iterable[Organization]) -> StandbyView:
    """With the name of the organization whose it is; of one that was deleted, what it was known
    by."""
    for tenant in tenants:
        if tenant.owner == view.organization:
            return replace(view, pool=tenant.shown_pool(view.pool), organization=tenant.name)
    return view
