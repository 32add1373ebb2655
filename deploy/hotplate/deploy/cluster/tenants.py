"""What the engine sees of the namespaces of organizations, and of the nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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


log = logging.getLogger(__name__)


@dataclass
class _Tenant:
    mirrors: dict[str, Mirror]
    following: Sequence[asyncio.Task[None]]
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
        again_s: float = 2.5,
    ) -> None:
        """Each gets copies of the release's `pull_secrets`. These are looked at every `again_s`,
        and what was refused is tried again then."""
        self._api, self._release, self._changed = api, release, changed
        self._pull_secrets, self._again_s = pull_secrets, again_s
        self._copied_at = 0.0
        self._refused: dict[str, tuple[ClusterRefused, float]] = {}
        """By organization, why, and when, in the loop's time."""
        self._tenants: dict[str, _Tenant] = {}
        self._absent: set[str] = set()
        """Organizations that had no namespace when we looked: only we make them."""
        self._tasks = BackgroundTasks()

    async def prepare(
        self, organizations: Collection[str], make: Collection[str]
    ) -> Mapping[str, ClusterRefused]:
        """Have the namespaces of those in `make`, and follow what is in all of these, and in no
        others. What was refused, by organization: one whose old namespace still ends holds up no
        other. Raises `ClusterUnreachable`."""
        there = {*organizations, *make}
        for organization in self._tenants.keys() - there:
            for task in self._tenants.pop(organization).following:
                task.cancel()
        self._absent &= there
        self._refused = {name: each for name, each in self._refused.items() if name in there}
        for organization in sorted(there - (self._absent - {*make})):
            tenant = self._tenants.get(organization)
            if (tenant is None or not tenant.made) and not self._was_refused_lately(organization):
                try:
                    await self._prepare(organization, made=organization in make)
                    self._refused.pop(organization, None)
                except ClusterRefused as error:
                    self._refused[organization] = (error, _now())
        await self._renew_copies()
        return {organization: error for organization, (error, _) in self._refused.items()}

    def _was_refused_lately(self, organization: str) -> bool:
        refused = self._refused.get(organization)
        return refused is not None and _now() < refused[1] + self._again_s

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

    def objects(self, but: Collection[str] = ()) -> dict[Ref, Manifest]:
        """Of all organizations of which everything has been seen, but these."""
        return {
            ref: each
            for organization, tenant in self._tenants.items()
            if organization not in but and self.is_listed(organization)
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
        for copy in self._copies(await self._originals(), organization):
            await self._copy(copy, await self._read(ref_of(copy)))
        if organization not in self._tenants:
            self._tenants[organization] = self._follow(organization)
        self._tenants[organization].made = True

    async def _renew_copies(self) -> None:
        """Somebody may have changed a Secret, or a copy."""
        if not self._pull_secrets or _now() < self._copied_at + self._again_s:
            return
        self._copied_at = _now()
        originals = await self._originals()
        for organization, tenant in list(self._tenants.items()):
            if tenant.made and self.is_listed(organization):
                for copy in self._copies(originals, organization):
                    seen = tenant.mirrors[SECRET.name].objects.get(ref_of(copy))
                    await self._copy(copy, seen)

    async def _copy(self, copy: Manifest, seen: Manifest | None) -> None:
        """Whoever pulls images says what is wrong with it, so that one that is refused holds up
        nothing."""
        there = seen and {**seen, "apiVersion": copy["apiVersion"], "kind": SECRET.name}
        try:
            if not matches(copy, there):
                await self._api.apply(copy)
        except ClusterRefused as error:
            log.warning("%s cannot be copied: %s", ref_of(copy).path, error)

    async def _originals(self) -> Sequence[Manifest]:
        """Those that are there: kubelet says which ones are missing."""
        refs = [Ref(SECRET.name, self._release, name) for name in self._pull_secrets]
        found = [await self._read(ref) for ref in refs]
        return [each for each in found if each is not None]

    def _copies(self, originals: Sequence[Manifest], organization: str) -> Sequence[Manifest]:
        return [
            {
                "apiVersion": SECRET.version,
                "kind": SECRET.name,
                "metadata": {
                    "name": original["metadata"]["name"],
                    "namespace": names.tenant_namespace(self._release, organization),
                    "labels": names.organization_labels(organization),
                },
                "type": original["type"],
                "data": original.get("data") or {},
            }
            for original in originals
        ]

    async def _read(self, ref: Ref) -> Manifest | None:
        try:
            return await self._api.read(ref)
        except ClusterRefused as error:
            if error.status != 403:
                raise
            return None  # we may read nothing there until the role is bound

    def _follow(self, organization: str) -> _Tenant:
        namespace = names.tenant_namespace(self._release, organization)
        asked = {**{kind.name: OURS for kind in WATCHED}, EVENT.name: WARNINGS}
        mirrors = {
            kind: Mirror(self._api, KINDS[kind], namespace, query, self._changed)
            for kind, query in asked.items()
        }
        following = [
            self._tasks.start(mirror.run(), name=f"{kind} of {namespace}")
            for kind, mirror in mirrors.items()
        ]
        return _Tenant(mirrors, following)


def _now() -> float:
    return asyncio.get_running_loop().time()
