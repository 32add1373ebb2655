"""What the engine sees of the namespaces of organizations, and of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.kinds import EVENT, KINDS, POD, SECRET, WATCHED, Ref, ref_of
from hotplate.deploy.cluster.mirror import Mirror
from hotplate.deploy.cluster.objects import Manifest, tenancy
from hotplate.deploy.cluster.plan import matches
from hotplate.deploy.errors import ClusterRefused
from hotplate.machine.background import BackgroundTasks

OURS = {"labelSelector": f"{names.MANAGED_BY}={names.PRODUCT}"}
WARNINGS = {"fieldSelector": f"involvedObject.kind={POD.name},type=Warning"}


@dataclass
class _Tenant:
    mirrors: dict[str, Mirror]
    made: bool = False
    """Whether its namespace was there when we looked last."""


class Tenants:
    """The namespaces of all organizations that the engine was asked about."""

    def __init__(
        self,
        api: ClusterApi,
        release: str,
        changed: Callable[[], None],
        pull_secrets: Sequence[str] = (),
    ) -> None:
        """Each gets copies of the release's `pull_secrets`, as they are when it is prepared."""
        self._api, self._release, self._changed = api, release, changed
        self._pull_secrets = pull_secrets
        self._tenants: dict[str, _Tenant] = {}
        self._absent: set[str] = set()
        """Organizations that had no namespace when we looked: only we make them."""
        self._tasks = BackgroundTasks()

    async def prepare(self, organizations: Collection[str], make: Collection[str]) -> None:
        """Have the namespaces of those in `make`, and follow what is in all. Raises
        `ClusterRefused` and `ClusterUnreachable`."""
        for organization in sorted({*organizations, *make} - (self._absent - {*make})):
            tenant = self._tenants.get(organization)
            if tenant is None or not tenant.made:
                await self._prepare(organization, made=organization in make)

    def lost(self, namespace: str) -> None:
        """It may have gone: look for it again."""
        for organization, tenant in self._tenants.items():
            if names.tenant_namespace(self._release, organization) == namespace:
                tenant.made = False

    def is_listed(self, organization: str) -> bool:
        """Whether all that is there has been seen."""
        tenant = self._tenants.get(organization)
        return tenant is not None and all(each.listed.is_set() for each in tenant.mirrors.values())

    async def listed(self) -> None:
        """Returns once everything has been seen that is followed now."""
        for tenant in list(self._tenants.values()):
            for mirror in tenant.mirrors.values():
                await mirror.listed.wait()

    def objects(self) -> dict[Ref, Manifest]:
        """Of all organizations of which everything has been seen."""
        return {
            ref: each
            for organization, tenant in self._tenants.items()
            if self.is_listed(organization)
            for kind in WATCHED
            for ref, each in tenant.mirrors[kind.name].objects.items()
        }

    def of_kind(self, kind: str) -> Iterator[Manifest]:
        """Of all organizations."""
        for tenant in self._tenants.values():
            yield from tenant.mirrors[kind].objects.values()

    async def close(self) -> None:
        await self._tasks.cancel()

    async def _prepare(self, organization: str, *, made: bool) -> None:
        wanted = tenancy(self._release, organization)
        seen = [await self._read(ref_of(each)) for each in wanted]
        if seen[0] is None and not made:
            self._absent.add(organization)
            return
        self._absent.discard(organization)
        for manifest, there in zip(wanted, seen, strict=True):
            if not matches(manifest, there):
                await self._api.apply(manifest)
        for name in self._pull_secrets:
            await self._copy_secret(name, organization)
        if organization not in self._tenants:
            self._tenants[organization] = _Tenant(self._follow(organization))
        self._tenants[organization].made = True

    async def _copy_secret(self, name: str, organization: str) -> None:
        original = await self._api.read(Ref(SECRET.name, self._release, name))
        if original is None:
            return  # kubelet says which one is missing
        copy = {
            "apiVersion": SECRET.version,
            "kind": SECRET.name,
            "metadata": {
                "name": name,
                "namespace": names.tenant_namespace(self._release, organization),
                "labels": names.organization_labels(organization),
            },
            "type": original["type"],
            "data": original.get("data") or {},
        }
        if not matches(copy, await self._read(ref_of(copy))):
            await self._api.apply(copy)

    async def _read(self, ref: Ref) -> Manifest | None:
        try:
            return await self._api.read(ref)
        except ClusterRefused as error:
            if error.status != 403:
                raise
            return None  # we may read nothing there until the role is bound

    def _follow(self, organization: str) -> dict[str, Mirror]:
        namespace = names.tenant_namespace(self._release, organization)
        asked = {**{kind.name: OURS for kind in WATCHED}, EVENT.name: WARNINGS}
        mirrors = {
            kind: Mirror(self._api, KINDS[kind], namespace, query, self._changed)
            for kind, query in asked.items()
        }
        for kind, mirror in mirrors.items():
            self._tasks.start(mirror.run(), name=f"{kind} of {namespace}")
        return mirrors
