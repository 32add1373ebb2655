"""What is to be written so that a cluster has what is wanted; pure.

A second look at the same state plans nothing: an object is applied when it is not there, when it
was made of something else (its stamp), or when somebody has changed what we say in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.kinds import CONFIG_MAP, DEPLOYMENT, POD, Ref, ref_of
from hotplate.deploy.cluster.objects import Manifest, owned, stamped
from hotplate.deploy.cluster.pods import is_ending, is_over

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
GOES_FIRST = "-1000"
"""The cost of a pod that has been drained: those that cost least go first."""


Group = tuple[str, ...]
"""What is written one after the other: a namespace and a deployment, and of a workload also its
revision and its service's slug."""


@dataclass(frozen=True)
class Write:
    """One request, and why it is made."""

    ref: Ref
    group: Group
    reason: str


@dataclass(frozen=True)
class Apply(Write):
    manifest: Manifest


@dataclass(frozen=True)
class Bear(Apply):
    """A Deployment that is not there: it is born with no replica."""


@dataclass(frozen=True)
class SetReplicas(Write):
    count: int
    version: str
    """Of the Deployment at which this was decided."""


@dataclass(frozen=True)
class Prefer(Write):
    """A pod goes before others of its Deployment."""


@dataclass(frozen=True)
class Delete(Write):
    uid: str


@dataclass(frozen=True)
class Release(Write):
    """An anchor that is being deleted goes: nothing of it is left to drain."""

    anchor: Manifest


@dataclass(frozen=True)
class WantedObjects:
    """What one workload is to have."""

    group: Group
    objects: Sequence[Manifest]
    """The Deployment last; without a stamp and an owner. None = it cannot be said now, and those
    that are there stay as they are."""
    count: int | None
    """None = as many as there are: nobody has said yet."""
    drained: frozenset[str] = frozenset()
    """Pods that go before others."""


@dataclass(frozen=True)
class World:
    """What a cluster has of ours in the namespaces of organizations, of kinds that are watched."""

    objects: Mapping[Ref, Manifest]

    def of_kind(self, kind: str) -> Iterator[tuple[Ref, Manifest]]:
        return ((ref, each) for ref, each in self.objects.items() if ref.kind == kind)

    def pods_of(self, manifest: Manifest) -> list[tuple[Ref, Manifest]]:
        """All pods of a deployment or of a workload, whichever the object's labels name."""
        own = _own_labels(manifest)
        return [
            (ref, pod)
            for ref, pod in self.of_kind(POD.name)
            if own.items() <= _own_labels(pod).items()
            and ref.namespace == manifest["metadata"]["namespace"]
        ]


@dataclass
class _Plan:
    world: World
    writes: list[Write] = field(default_factory=list)
    kept: set[Ref] = field(default_factory=set)
    unsaid: set[Group] = field(default_factory=set)
    """Workloads of which it cannot be said which objects they are to have."""


def group_of(manifest: Manifest) -> Group:
    """By the labels of an object."""
    return (manifest["metadata"].get("namespace", ""), *_own_labels(manifest).values())


def plan(
    anchors: Iterable[Manifest], wanted: Iterable[WantedObjects], world: World, *, all_named: bool
) -> list[Write]:
    """The next writes, in order. `anchors` are of all deployments that are wanted; what is not
    wanted ends only once all that is has been named."""
    made = _Plan(world)
    there: dict[Ref, Manifest] = {}
    for anchor in anchors:
        if (found := _anchor(made, anchor)) is not None:
            there[ref_of(anchor)] = found
    for each in wanted:
        _workload(made, each, there)
    if all_named:
        _prune(made)
    numbers = {
        write.ref: write for write in reversed(made.writes) if isinstance(write, SetReplicas)
    }
    return [
        write
        for write in made.writes
        if not isinstance(write, SetReplicas) or numbers[write.ref] is write
    ]


def matches(said: Any, seen: Any) -> bool:
    """Whether what there is says everything that we say; it may say more."""
    if isinstance(said, Mapping):
        return isinstance(seen, Mapping) and all(
            matches(value, seen.get(name)) for name, value in said.items()
        )
    if isinstance(said, Sequence) and not isinstance(said, str):
        return (
            isinstance(seen, Sequence) and len(said) == len(seen) and all(map(matches, said, seen))
        )
    empty = said in (False, "", 0)  # which the server leaves out
    return bool(said == seen or (empty and seen is None))


def _anchor(made: _Plan, anchor: Manifest) -> Manifest | None:
    """The anchor that is there; None until it is, and while an old one goes."""
    ref = ref_of(anchor)
    made.kept.add(ref)
    seen = made.world.objects.get(ref)
    if seen is not None and is_ending(seen):
        _drain(made, ref, seen)
        return None
    _keep(made, anchor)
    return seen


def _workload(made: _Plan, wanted: WantedObjects, anchors: Mapping[Ref, Manifest]) -> None:
    namespace, deployment, *_ = wanted.group
    anchor = anchors.get(Ref(CONFIG_MAP.name, namespace, deployment))
    made.kept.update(map(ref_of, wanted.objects))
    if not wanted.objects:
        made.unsaid.add(wanted.group)
    if anchor is None:
        return  # the next look goes on, when it is there
    for manifest in wanted.objects:
        _keep(made, owned(manifest, anchor["metadata"]["uid"]))
    for ref, seen in made.world.of_kind(DEPLOYMENT.name):
        if group_of(seen) == wanted.group and (not wanted.objects or ref in made.kept):
            _scale(made, ref, seen, wanted)


def _keep(made: _Plan, manifest: Manifest) -> None:
    manifest = stamped(manifest)
    ref, seen = ref_of(manifest), made.world.objects.get(ref_of(manifest))
    if seen is None:
        kind = Bear if ref.kind == DEPLOYMENT.name else Apply
        made.writes.append(kind(ref, group_of(manifest), "it is not there", manifest))
    elif is_ending(seen):
        return  # it is made anew when it has gone
    elif _stamp(seen) != _stamp(manifest):
        made.writes.append(
            Apply(ref, group_of(manifest), "it was made of something else", manifest)
        )
    elif not matches(manifest, {**seen, "apiVersion": manifest["apiVersion"], "kind": ref.kind}):
        made.writes.append(Apply(ref, group_of(manifest), "somebody has changed it", manifest))


def _scale(made: _Plan, ref: Ref, seen: Manifest, wanted: WantedObjects) -> None:
    if wanted.count is None or is_ending(seen):
        return
    there = seen["spec"].get("replicas", 1)
    pods = [(ref, pod) for ref, pod in made.world.pods_of(seen) if not is_ending(pod)]
    for pod_ref, pod in pods:
        if is_over(pod):
            made.writes.append(_deletion(pod_ref, pod, "it has ended"))
    drained = [(pod_ref, pod) for pod_ref, pod in pods if pod_ref.name in wanted.drained]
    surplus = max(0, there - wanted.count)
    for number, (pod_ref, pod) in enumerate(drained):
        if number >= surplus:  # as many stay as there were, so another one comes for it
            made.writes.append(_deletion(pod_ref, pod, "it has been drained"))
        elif (pod["metadata"].get("annotations") or {}).get(DELETION_COST) != GOES_FIRST:
            made.writes.append(Prefer(pod_ref, group_of(pod), "it has been drained"))
    if there != wanted.count:
        made.writes.append(_scaling(ref, seen, wanted.count, f"scaled from {there}"))


def _prune(made: _Plan) -> None:
    """End what nobody wants: Deployments first, and all else when no pod of it is left."""
    for ref, seen in made.world.objects.items():
        if ref in made.kept or ref.kind == POD.name or is_ending(seen):
            continue
        if not _own_labels(seen) or group_of(seen) in made.unsaid:
            continue
        if _is_anchor(ref, seen):
            made.writes.append(_deletion(ref, seen, "its deployment is gone"))
        elif ref.kind == DEPLOYMENT.name and seen["spec"].get("replicas", 1):
            made.writes.append(_scaling(ref, seen, 0, "it is no longer wanted"))
        elif not _in_use(made.world, ref, seen):
            made.writes.append(_deletion(ref, seen, "it is no longer wanted"))
    for ref, seen in made.world.of_kind(CONFIG_MAP.name):
        if ref not in made.kept and _is_anchor(ref, seen) and is_ending(seen):
            _drain(made, ref, seen)


def _drain(made: _Plan, ref: Ref, anchor: Manifest) -> None:
    """What an anchor that is being deleted holds: its pods first."""
    if names.DRAIN not in (anchor["metadata"].get("finalizers") or ()):
        return
    for other, seen in made.world.of_kind(DEPLOYMENT.name):
        of_it = _own_labels(anchor).items() <= _own_labels(seen).items()
        if of_it and other.namespace == ref.namespace and seen["spec"].get("replicas", 1):
            made.writes.append(_scaling(other, seen, 0, "its deployment is gone"))
    if not made.world.pods_of(anchor):
        made.writes.append(Release(ref, group_of(anchor), "none of its pods is left", anchor))


def _in_use(world: World, ref: Ref, seen: Manifest) -> bool:
    """Whether a pod or a Deployment may still need it."""
    pods = [pod for _, pod in world.pods_of(seen)]
    if ref.kind == DEPLOYMENT.name:
        return bool(pods)
    if ref.kind == CONFIG_MAP.name:
        return any(ref.name in _config_maps(pod) for pod in pods)
    own = _own_labels(seen)
    return bool(pods) or any(
        own == _own_labels(each) and other.namespace == ref.namespace
        for other, each in world.of_kind(DEPLOYMENT.name)
    )


def _config_maps(pod: Manifest) -> set[str]:
    volumes = pod["spec"].get("volumes") or ()
    return {each["configMap"]["name"] for each in volumes if "configMap" in each}


def _is_anchor(ref: Ref, seen: Manifest) -> bool:
    labels = seen["metadata"].get("labels") or {}
    return ref.kind == CONFIG_MAP.name and ref.name == labels.get(names.DEPLOYMENT)


def _deletion(ref: Ref, seen: Manifest, reason: str) -> Delete:
    return Delete(ref, group_of(seen), reason, seen["metadata"]["uid"])


def _scaling(ref: Ref, seen: Manifest, count: int, reason: str) -> SetReplicas:
    return SetReplicas(ref, group_of(seen), reason, count, seen["metadata"]["resourceVersion"])


def _stamp(manifest: Manifest) -> str:
    return str((manifest["metadata"].get("annotations") or {}).get(names.MANIFEST, ""))


def _own_labels(manifest: Manifest) -> dict[str, str]:
    labels = manifest["metadata"].get("labels") or {}
    named = (names.DEPLOYMENT, names.REVISION, names.SERVICE)
    return {name: labels[name] for name in named if name in labels}
