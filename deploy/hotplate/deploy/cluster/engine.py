"""The engine of a Kubernetes cluster: replicas are pods.

What is wanted (`expect`, `scale`) becomes objects (`objects`), which are compared with what the
cluster has (`tenants`, `mirror`) whenever a call or a change of the cluster wakes the one task that
does it; `plan` says which to write. The cluster makes the pods and restarts them; nothing here is
kept but what was wanted last, so an engine that starts anew goes on where the last one was.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.kinds import DEPLOYMENT, EVENT, NODE, POD
from hotplate.deploy.cluster.leaving import Leaving
from hotplate.deploy.cluster.mirror import Mirror
from hotplate.deploy.cluster.objects import Manifest, Placed, anchor, objects
from hotplate.deploy.cluster.plan import Group, WantedObjects, World, plan
from hotplate.deploy.cluster.pod_logs import PodLogs
from hotplate.deploy.cluster.pod_spec import PodRuntime
from hotplate.deploy.cluster.pods import (
    is_ending,
    is_over,
    nodes,
    refusal,
    refused,
    replica_of,
    restarts_of,
    told_of,
)
from hotplate.deploy.cluster.preparing import Preparing
from hotplate.deploy.cluster.settings import ClusterSettings
from hotplate.deploy.cluster.starts import Starts
from hotplate.deploy.cluster.tenants import Tenants
from hotplate.deploy.cluster.writing import Writer
from hotplate.deploy.engine import Engine, Node, Replica
from hotplate.deploy.errors import ClusterRefused, DeployError
from hotplate.deploy.standbys import NoStandbys, Standbys
from hotplate.deploy.workload import Resources, Workload, WorkloadKey
from hotplate.machine.background import BackgroundTasks

TOGETHER_S = 0.02
"""What changes within so long is looked at once."""
AGAIN_S = 1.0
"""After a look that failed as a whole."""

log = logging.getLogger(__name__)


@dataclass
class _Desired:
    workload: Workload
    count: int | None = None
    """None = as many as there are."""
    drained: set[str] = field(default_factory=set)


class KubernetesEngine(Engine):
    """Makes what is desired exist, as pods of a cluster."""

    def __init__(
        self,
        api: ClusterApi,
        runtime: PodRuntime,
        organizations: Callable[[], Collection[str]],
        settings: ClusterSettings | None = None,
    ) -> None:
        """`organizations` are all that there are: what nobody wants any longer is looked for in
        their namespaces."""
        self._api, self._organizations = api, organizations
        self._settings = settings or ClusterSettings()
        self._desired: dict[WorkloadKey, _Desired] = {}
        self._all_named = False
        self._wake, self._has_changed = asyncio.Event(), asyncio.Event()
        self._seen: Sequence[Replica] | None = None
        self._troubles: dict[WorkloadKey, str] = {}
        """Why there are not as many pods as wanted, of those that cannot be written."""
        self._preparing = Preparing(runtime, self._changed)
        self._starts = Starts(runtime, self._changed)
        self._nodes = Mirror(api, NODE, "", {}, self._changed)
        self._tenants = Tenants(
            api,
            self._settings.release,
            self._changed,
            self._settings.pull_secrets,
            self._settings.look_s / 2,
        )
        self._writer = Writer(api, self._settings)
        self._logs = PodLogs(api, self._settings)
        self._leaving = Leaving(self._settings.seen_after_s)
        self.standbys: Standbys = NoStandbys()
        self._tasks = BackgroundTasks()

    async def start(self) -> None:
        self._tasks.start(self._nodes.run(), name="nodes")
        self._tasks.start(self._reconcile(), name="Kubernetes engine")
        await self._nodes.listed.wait()
        await self._tenants.prepare(self._organizations(), ())
        await self._tenants.listed()
        self._changed()

    async def scale(self, workload: Workload, count: int, *, remove: Collection[str] = ()) -> None:
        desired = self._desired.setdefault(workload.key, _Desired(workload))
        desired.workload, desired.count = workload, count
        desired.drained.update(remove)
        if remove:
            self._leaving.told(remove, asyncio.get_running_loop().time())
            self._seen = None
        self._wake.set()

    async def expect(self, workloads: Collection[Workload]) -> None:
        named = {each.key: each for each in workloads}
        self._desired = {key: each for key, each in self._desired.items() if key in named}
        for key, workload in named.items():
            self._desired.setdefault(key, _Desired(workload)).workload = workload
        self._all_named = True
        self._wake.set()

    def replicas(self) -> Sequence[Replica]:
        if self._seen is None:
            self._seen = self._look()
        return self._seen

    async def changed(self) -> None:
        await self._has_changed.wait()
        self._has_changed.clear()

    async def logs(self, replica: str, lines: int) -> list[str]:
        return await self._logs.tail(replica, self._pod(replica), lines)

    def follow(self, replica: str, lines: int | None = None) -> AsyncGenerator[str, None]:
        return self._logs.followed(replica, self._pod(replica), lines)

    def capacity(self) -> Mapping[str, Node]:
        return nodes(self._nodes.objects.values(), self._tenants.of_kind(POD.name))

    def bounds(self) -> Resources | None:
        return self._settings.bounds

    def footprint_bytes(self, key: WorkloadKey) -> int:
        return 0

    async def stop_all(self) -> None:
        for desired in self._desired.values():
            desired.count = 0
        self._all_named = True
        self._wake.set()
        while self.replicas():
            await self.changed()

    async def close(self) -> None:
        await self._tasks.cancel()
        await self._tenants.close()
        await self._starts.close()
        await self._logs.close()
        await self._api.close()

    def _changed(self) -> None:
        self._seen = None
        self._logs.follow(self._tenants.of_kind(POD.name))
        self._has_changed.set()
        self._wake.set()

    def _look(self) -> Sequence[Replica]:
        told = told_of(self._tenants.of_kind(EVENT.name))
        pods = list(self._tenants.of_kind(POD.name))
        found = [replica for pod in pods if (replica := self._replica(pod, told)) is not None]
        self._starts.follow(found)
        there: dict[WorkloadKey, int] = defaultdict(int)
        for pod in pods:
            if not (is_ending(pod) or is_over(pod)) and (key := _key_of(pod)) is not None:
                there[key] += 1
        workloads = {key: each.workload for key, each in self._desired.items()}
        known = [self._starts.known(replica, workloads.get(replica.key)) for replica in found]
        now = asyncio.get_running_loop().time()
        shown = [self._leaving.shown(replica, now) for replica in known]
        return [*shown, *self._missing(there)]

    def _replica(self, pod: Manifest, told: Mapping[str, Sequence[Manifest]]) -> Replica | None:
        uid, restarts = pod["metadata"]["uid"], restarts_of(pod)
        sharpened = partial(self._starts.sharpened, uid, restarts)
        return replica_of(pod, told.get(uid, ()), self._starts.heard(uid, restarts), sharpened)

    def _missing(self, there: Mapping[WorkloadKey, int]) -> Sequence[Replica]:
        """Those that are wanted, and that cannot be made now, or the cluster does not make."""
        reasons = dict(self._troubles)
        for deployment in self._tenants.of_kind(DEPLOYMENT.name):
            if (key := _key_of(deployment)) is not None and (reason := refusal(deployment)):
                reasons.setdefault(key, reason)
        bases = names.bases(self._desired)
        return [
            self._absent(each.workload, f"{bases[key]}-{number}", reasons.get(key, ""))
            for key, each in self._desired.items()
            if key in reasons or key in self._preparing
            for number in range(there.get(key, 0), each.count or 0)
        ]

    def _absent(self, workload: Workload, name: str, reason: str) -> Replica:
        if workload.key in self._preparing:
            return self._preparing.replica(workload, name)
        return refused(workload.key, name, reason, workload.resources)

    def _pod(self, name: str) -> Manifest | None:
        pods = self._tenants.of_kind(POD.name)
        return next((pod for pod in pods if pod["metadata"]["name"] == name), None)

    async def _reconcile(self) -> None:
        while True:
            with suppress(TimeoutError):
                pause_s = self._preparing.pause_s(self._settings.look_s)
                async with asyncio.timeout(self._writer.pause_s(pause_s)):
                    await self._wake.wait()
            await asyncio.sleep(TOGETHER_S)
            self._wake.clear()
            try:
                await self._step()
            except DeployError as error:
                log.warning("what is wanted and what there is could not be compared: %s", error)
                await asyncio.sleep(AGAIN_S)
            except Exception:  # a bug must not end the loop of all replicas
                log.exception("what is wanted and what there is could not be compared")
                await asyncio.sleep(AGAIN_S)

    async def _step(self) -> None:
        """Compare what is wanted with what there is once, and write what is missing."""
        # Both at once: what is named while this step waits is looked at by the next one, and this
        # one must not take it for what nobody wants.
        desired, all_named = dict(self._desired), self._all_named
        self._preparing.forget(desired)
        self._notice_time()
        needed = {key.organization for key in desired}
        refused = await self._tenants.prepare(self._organizations(), needed)
        seen = {name for name in needed if self._tenants.is_listed(name)}
        bases = names.bases(desired)
        wanted: dict[WorkloadKey, WantedObjects] = {}
        for key, each in desired.items():
            if key.organization in seen:
                wanted[key] = await self._wanted(each, bases[key])
        anchors = {(key.organization, key.deployment) for key in wanted}
        world = World(self._tenants.objects(but=needed - seen))
        writes = plan(
            [anchor(*of, names.tenant_namespace(self._settings.release, of[0])) for of in anchors],
            wanted.values(),
            world,
            all_named=all_named,
        )
        drained = {key: set(each.drained) for key, each in desired.items()}
        failed = await self._writer.write(writes, world)
        for key, having in wanted.items():
            reason = _reason(failed, having.group)
            if not reason and key not in self._preparing:
                desired[key].drained -= drained[key]
            self._trouble(key, reason)
        for key in desired.keys() - wanted.keys():
            if (why := refused.get(key.organization)) is not None:
                self._trouble(key, str(why))
        for group, error in failed.items():
            if isinstance(error, ClusterRefused) and error.status in (403, 404):
                self._tenants.lost(group[0])

    async def _wanted(self, desired: _Desired, base: str) -> WantedObjects:
        workload = desired.workload
        namespace = names.tenant_namespace(self._settings.release, workload.key.organization)
        placed = Placed(workload, base, namespace, self._settings.release, not workload.entry)
        group = (namespace, *names.workload_labels(workload.key).values())
        count, drained = desired.count, frozenset(desired.drained)
        pod = await self._preparing.pod(workload, base, namespace)
        made = () if pod is None else objects(placed, pod)
        return WantedObjects(group, made, count, drained)

    def _notice_time(self) -> None:
        """Nothing tells when one has become late."""
        self._preparing.follow({key for key, each in self._desired.items() if each.count})
        if self._seen is not None:
            shown = [replica.state for replica in self._seen]
            if shown != [replica.state for replica in self._look()]:
                self._changed()

    def _trouble(self, key: WorkloadKey, reason: str) -> None:
        if self._troubles.get(key, "") == reason:
            return
        self._troubles[key] = reason
        self._changed()


def _reason(failed: Mapping[Group, DeployError], group: Group) -> str:
    """What stands in the way of a workload: of its own objects, or of its deployment's anchor."""
    error = failed.get(group) or failed.get(group[:2])
    return "" if error is None else str(error)


def _key_of(seen: Manifest) -> WorkloadKey | None:
    return names.key_in(seen["metadata"].get("annotations") or {})
