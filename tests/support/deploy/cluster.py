"""Objects of a cluster as its API server shows them, for what looks at them without I/O."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.kinds import DEPLOYMENT, POD, Ref, ref_of
from hotplate.deploy.cluster.objects import Manifest, Placed, anchor, objects
from hotplate.deploy.cluster.plan import (
    DELETION_COST,
    GOES_FIRST,
    Apply,
    Bear,
    Delete,
    Prefer,
    Release,
    SetReplicas,
    WantedObjects,
    World,
    Write,
    plan,
)
from hotplate.deploy.cluster.pod_spec import PodSpec
from hotplate.deploy.workload import Resources, Workload, WorkloadKey

RELEASE = "hotplate"
AT = "2026-01-01T00:00:00Z"
SERVING = {
    "podIP": "10.0.0.7",
    "conditions": [
        {"type": kind, "status": "True", "lastTransitionTime": AT}
        for kind in ("PodScheduled", "Ready")
    ],
    "containerStatuses": [
        {
            "name": "replica",
            "restartCount": 0,
            "ready": True,
            "started": True,
            "state": {"running": {"startedAt": AT}},
        }
    ],
}
"""The status of a pod that is ready."""


def workload(
    deployment: str = "hello",
    service: str = "Hello",
    revision: int = 1,
    organization: str = "acme",
    resources: Resources | None = None,
) -> Workload:
    key = WorkloadKey(organization, deployment, revision, service)
    given = Resources(0.5, 64 << 20) if resources is None else resources
    return Workload(key, "bento", "v1", "manifest", resources=given)


def pod_spec(**said: Any) -> PodSpec:
    return PodSpec(image="runtime:1", command=("serve",), job={"service": "Hello"}, **said)


def placed(given: Workload, *, called: bool = False) -> Placed:
    namespace = names.tenant_namespace(RELEASE, given.key.organization)
    (base,) = names.bases([given.key]).values()
    return Placed(given, base, namespace, RELEASE, called)


def wanted(
    given: Workload, count: int | None, drained: Iterable[str] = (), pod: PodSpec | None = None
) -> WantedObjects:
    where = placed(given)
    group = (where.namespace, *names.workload_labels(given.key).values())
    made = objects(where, pod or pod_spec())
    return WantedObjects(group, made, count, frozenset(drained))


class Happened(NamedTuple):
    version: int
    what: str
    """ADDED, MODIFIED or DELETED."""
    ref: Ref
    seen: Manifest


class ClusterInMemory:
    """Does what is written, as an API server and its controllers would: objects have a uid and a
    version, Deployments have pods, what has finalizers stays until it has none."""

    def __init__(self) -> None:
        self.objects: dict[Ref, Manifest] = {}
        self.version = 0
        """Of the last change."""
        self.status: Mapping[str, Any] = SERVING
        """That of each pod that is made."""
        self.happened: list[Happened] = []
        self._pods = itertools.count(1)
        self._has_changed = asyncio.Event()

    @property
    def world(self) -> World:
        return World(dict(self.objects))

    def look(self, *each: tuple[Workload, int], all_named: bool = True) -> list[Write]:
        """What is to be written so that these have so many."""
        return self.look_at([wanted(given, count) for given, count in each], all_named=all_named)

    def look_at(self, given: Iterable[WantedObjects], *, all_named: bool = True) -> list[Write]:
        given = list(given)
        anchors = [
            anchor(group[0].partition("-t-")[2], group[1], group[0])
            for group in {each.group[:2] for each in given}
        ]
        return plan(anchors, given, self.world, all_named=all_named)

    def settle(self, *each: tuple[Workload, int], all_named: bool = True) -> list[Write]:
        """Look and write until nothing is left to be written; everything that was."""
        made: list[Write] = []
        for _ in range(20):
            writes = self.look(*each, all_named=all_named)
            if not writes:
                return made
            for write in writes:
                self.make(write)
            made += writes
        raise AssertionError(f"it goes on and on: {writes}")

    def make(self, write: Write) -> None:
        match write:
            case Bear():
                spec = {**write.manifest["spec"], "replicas": 0}
                self.put({**write.manifest, "spec": spec})
            case Apply():
                self.put(write.manifest)
            case SetReplicas():
                seen = self.objects[write.ref]
                if seen["metadata"]["resourceVersion"] != write.version:
                    return  # refused as a conflict: the next look goes on
                self.scale(write.ref, write.count)
            case Prefer():
                self.annotate(write.ref, {DELETION_COST: GOES_FIRST})
            case Delete():
                assert self.objects[write.ref]["metadata"]["uid"] == write.uid
                self.delete(write.ref)
            case Release():
                self.release(write.ref)

    def scale(self, ref: Ref, count: int) -> None:
        seen = self.objects[ref]
        seen["spec"]["replicas"] = count
        self._touch(ref, "MODIFIED")
        self._follow(seen)

    def annotate(self, ref: Ref, annotations: Mapping[str, str]) -> None:
        self.objects[ref]["metadata"].setdefault("annotations", {}).update(annotations)
        self._touch(ref, "MODIFIED")

    def release(self, ref: Ref) -> None:
        self.objects[ref]["metadata"]["finalizers"] = []
        self.delete(ref)

    async def changed(self, since: int) -> None:
        """Returns once something has changed since that version."""
        while self.version <= since:
            await self._has_changed.wait()

    def put(self, manifest: Manifest) -> Ref:
        """As it is applied: what others say stays."""
        ref = ref_of(manifest)
        seen = self.objects.get(ref)
        made = copy.deepcopy(manifest)
        if seen is None:
            made["metadata"]["uid"] = f"uid-{self.version}"
            made["metadata"]["creationTimestamp"] = AT
        else:
            made["metadata"] = {**seen["metadata"], **made["metadata"]}
            if "spec" in seen:
                made["spec"] = {**seen["spec"], **made["spec"]}
        self.objects[ref] = made
        self._touch(ref, "ADDED" if seen is None else "MODIFIED")
        return ref

    def delete(self, ref: Ref) -> None:
        seen = self.objects[ref]
        if seen["metadata"].get("finalizers"):
            self.end(ref)
            return
        self._touch(ref, "DELETED")
        del self.objects[ref]
        uid = seen["metadata"]["uid"]
        for other, each in list(self.objects.items()):
            owners = each["metadata"].get("ownerReferences", ())
            if other in self.objects and uid in [owner["uid"] for owner in owners]:
                self.delete(other)

    def follow(self) -> None:
        """Have as many pods as each Deployment says."""
        for ref, each in list(self.objects.items()):
            if ref.kind == DEPLOYMENT.name:
                self._follow(each)

    def end(self, ref: Ref) -> None:
        """It is told to end, and goes on for a while."""
        self.objects[ref]["metadata"]["deletionTimestamp"] = AT
        self._touch(ref, "MODIFIED")

    @property
    def pods(self) -> list[str]:
        return sorted(ref.name for ref in self.objects if ref.kind == POD.name)

    def _touch(self, ref: Ref, what: str) -> None:
        self.version += 1
        seen = self.objects[ref]
        seen["metadata"]["resourceVersion"] = str(self.version)
        self.happened.append(Happened(self.version, what, ref, copy.deepcopy(seen)))
        self._has_changed.set()
        self._has_changed = asyncio.Event()

    def _follow(self, deployment: Manifest) -> None:
        """Make or end pods, those first that cost least."""
        uid = deployment["metadata"]["uid"]
        own = [
            (ref, each)
            for ref, each in self.objects.items()
            if ref.kind == POD.name and each["metadata"]["ownerReferences"][0]["uid"] == uid
        ]
        own.sort(key=lambda pod: DELETION_COST not in pod[1]["metadata"]["annotations"])
        for ref, _ in own[: max(0, len(own) - deployment["spec"]["replicas"])]:
            self.delete(ref)
        for _ in range(deployment["spec"]["replicas"] - len(own)):
            template = copy.deepcopy(deployment["spec"]["template"])
            meta = {
                **template["metadata"],
                "name": f"{deployment['metadata']['name']}-{next(self._pods)}",
                "namespace": deployment["metadata"]["namespace"],
                "ownerReferences": [{"uid": uid}],
            }
            spec = {**template["spec"], "nodeName": "node1"}
            pod = {"apiVersion": "v1", "kind": POD.name, "spec": spec, "status": self.status}
            self.put({**pod, "metadata": meta})
