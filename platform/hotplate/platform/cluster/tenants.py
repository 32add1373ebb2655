"""Which organizations there are, for an engine that looks for what nobody wants any longer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.kinds import NAMESPACE, Ref
from hotplate.deploy.cluster.names import organization_labels, tenant_namespace
from hotplate.deploy.cluster.plan import matches
from hotplate.deploy.errors import DeployError
from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.parts import Store

AGAIN_S = 5.0
DELETED = "organization.delete"

log = logging.getLogger("hotplate.controller")


class KnownOrganizations:
    """Follows the store. The namespace of one that is gone goes too: we may not list namespaces,
    and the audit says which organizations were deleted, also before a restart."""

    def __init__(self, store: Store, api: ClusterApi, release: str) -> None:
        self._store, self._api, self._release = store, api, release
        self._names: frozenset[str] = frozenset()
        self._leaving: set[str] = set()
        """Those that were deleted; their namespaces are to go once their deployments have ended,
        and stay where somebody has made another one of the name."""
        self._told = 0
        """The last line of the audit that was read."""

    def names(self) -> Collection[str]:
        return self._names

    async def read(self) -> None:
        """Raises StoreFailed."""
        audit = self._store.audit
        told = await self._store.run(audit.done, DELETED, self._told)
        found = await self._store.run(self._store.organizations.all)
        now = frozenset(organization.name for organization in found)
        self._leaving |= (self._names - now) | {line.object for line in told}
        self._told = max((line.id for line in told), default=self._told)
        self._names = now

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(AGAIN_S)

    async def look(self) -> None:
        """Remove the namespaces of those that have gone since."""
        try:
            await self.read()
            for name in sorted(self._leaving - self._names):
                await self.read()  # somebody may have made it anew just now
                if name not in self._names:
                    await self._remove(name)
        except StoreFailed as error:
            log.warning("which organizations there are cannot be read now: %s", error)

    async def _remove(self, organization: str) -> None:
        namespace = tenant_namespace(self._release, organization)
        ref = Ref(NAMESPACE.name, "", namespace)
        ours = {"metadata": {"labels": organization_labels(organization)}}
        try:
            there = await self._api.read(ref)
            if there is not None and matches(ours, there):
                await self._api.delete(ref, there["metadata"]["uid"])
                log.info("namespace %s is removed: its organization is gone", namespace)
        except DeployError as error:
            log.warning("namespace %s stays for now: %s", namespace, error)
            return
        self._leaving.discard(organization)
