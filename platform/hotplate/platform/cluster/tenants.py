"""Which organizations there are, for an engine that looks for what nobody wants any longer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.kinds import NAMESPACE, Ref
from hotplate.deploy.cluster.names import tenant_namespace
from hotplate.deploy.errors import DeployError
from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.parts import Store

AGAIN_S = 5.0

log = logging.getLogger("hotplate.controller")


class KnownOrganizations:
    """Follows the store. The namespace of one that is gone goes too."""

    def __init__(self, store: Store, api: ClusterApi, release: str) -> None:
        self._store, self._api, self._release = store, api, release
        self._names: frozenset[str] = frozenset()
        self._leaving: set[str] = set()
        """Those whose namespaces are to go."""

    def names(self) -> Collection[str]:
        return self._names

    async def read(self) -> None:
        """Raises StoreFailed."""
        found = await self._store.run(self._store.organizations.all)
        now = frozenset(organization.name for organization in found)
        self._leaving = (self._leaving | (self._names - now)) - now
        self._names = now

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(AGAIN_S)
            try:
                await self.read()
                for name in sorted(self._leaving):
                    await self._remove(name)
            except (StoreFailed, DeployError) as error:
                log.warning("namespaces of organizations that are gone stay for now: %s", error)

    async def _remove(self, organization: str) -> None:
        namespace = tenant_namespace(self._release, organization)
        ref = Ref(NAMESPACE.name, "", namespace)
        there = await self._api.read(ref)
        if there is not None:
            await self._api.delete(ref, there["metadata"]["uid"])
            log.info("namespace %s is removed: its organization is gone", namespace)
        self._leaving.discard(organization)
