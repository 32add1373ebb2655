"""What `rollouts.strategies` lets each revision of one deployment have; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.planning.observed import Observed
from hotplate.platform.controller.planning.workloads import Service, called_by
from hotplate.platform.controller.rollouts.strategies import (
    EntryReplicas,
    Phase,
    Progress,
    Shift,
    Strategy,
    Turnover,
    shift,
)
from hotplate.platform.spec.annotations import binary_of
from hotplate.platform.spec.bento_manifest import entry_service
from hotplate.platform.spec.label_settings import LabelSettings
from hotplate.platform.store.records import Deployment, DesiredState, Revision, RolloutOutcome

_FAILING = (
    ReplicaState.BACKOFF,
    ReplicaState.FAILED,
    ReplicaState.UNREADY,
    ReplicaState.PENDING,
)


def strategy_of(revision: Revision) -> Strategy:
    """How the revision replaces the one before it: as its entry service says."""
    by_service = revision.config.get("services") or {}
    settings = by_service.get(entry_service(revision.bento.manifest)) or {}
    return Strategy(settings.get("deployment_strategy") or Strategy.NONE)


def shared_strategy(deployment: Deployment) -> Strategy | None:
    """The strategy by which two revisions share the requests now; None where one has all."""
    latest, serving = deployment.latest, deployment.serving
    if (
        deployment.wanted is not DesiredState.RUNNING
        or latest.outcome is not RolloutOutcome.DEPLOYING
        or serving is None
        or serving.number == latest.number
    ):
        return None
    strategy = strategy_of(latest)
    return strategy if strategy.shares else None


def sharing(deployment: Deployment) -> tuple[int, int] | None:
    """The numbers of the new and the old revision where both get requests now."""
    if deployment.serving is None or shared_strategy(deployment) is None:
        return None
    return deployment.latest.number, deployment.serving.number


def turnover_of(observed: Observed) -> Turnover:
    """The roll-out of the latest revision, which has not ended, beside what there was before."""
    deployment = observed.deployment
    latest, serving = deployment.latest, deployment.serving
    settings = LabelSettings.of(deployment.labels)
    services = observed.services[latest.number]
    entry = next(service for service in services if service.workload.entry)
    key = entry.workload.key
    called = called_by(services, [entry.name])
    callable_ = all(_has_ready(observed, s) for s in services if s.name in called)
    before = [r for r in observed.replicas if r.key.revision != latest.number]
    wanted = 0
    if serving is not None:
        wanted = sum(
            observed.desired.get(service.workload.key, 0)
            for service in observed.services[serving.number]
            if service.workload.entry
        )
    entries = {s.workload.key for each in observed.services.values() for s in each if _entry(s)}
    allocation = observed.allocations.get(key)
    return Turnover(
        strategy_of(latest) if serving is not None else Strategy.NONE,
        wanted=wanted,
        size=rollout_size(observed, entry),
        old=_counted(observed, [r for r in before if r.key in entries], callable_=True),
        new=_counted(observed, observed.replicas_of(key), callable_=callable_),
        now=observed.now,
        progress=Progress.of(latest.progress),
        complete=all(is_rolled_out(observed, s) for s in services if not _entry(s)),
        others=sum(r.key not in entries for r in before),
        paused=latest.paused,
        ramp_s=settings.ramp_s,
        compared=settings.auto_rollback,
        answers=observed.answers,
        granted=None if allocation is None or not allocation.reason else allocation.replicas,
    )


@dataclass(frozen=True)
class Shifted:
    """What a roll-out lets each workload have, and how it stands."""

    shift: Shift
    counts: Mapping[WorkloadKey, int]
    """Of the latest revision, the serving one, and those between whose roll-out was cut short."""


def shifted(observed: Observed) -> Shifted:
    """How the roll-out of the latest revision goes on, which has not ended."""
    turnover = turnover_of(observed)
    found = shift(turnover)
    deployment = observed.deployment
    latest, serving = deployment.latest, deployment.serving
    strategy = turnover.strategy
    ends_first = strategy is Strategy.RECREATE
    counts: dict[WorkloadKey, int] = {}
    for service in observed.services[latest.number]:
        held_back = ends_first and not found.new
        beside = 0 if held_back else rollout_size(observed, service)
        if latest.paused:
            beside = min(beside, len(observed.replicas_of(service.workload.key)))
        counts[service.workload.key] = found.new if _entry(service) else beside
    if serving is None or serving.number == latest.number:
        return Shifted(found, counts)
    if not strategy.shares:
        counts |= {
            s.workload.key: observed.desired.get(s.workload.key, 0)
            for s in observed.services[serving.number]
        }
        return Shifted(found, counts)
    left = found.old
    for number in sorted(observed.services, key=lambda n: (n != serving.number, -n)):
        if number == latest.number:
            continue
        for service in observed.services[number]:
            key = service.workload.key
            if not _entry(service):
                kept = 0 if ends_first and not found.old else observed.desired.get(key, 0)
                counts[key] = kept if number == serving.number else 0
                continue
            live = _counted(observed, observed.replicas_of(key), callable_=True).live
            counts[key] = min(live, left)
            left -= counts[key]
    entry = next(s for s in observed.services[serving.number] if _entry(s))
    counts[entry.workload.key] += left
    return Shifted(found, counts)


def beyond_wanted(observed: Observed, counts: Mapping[WorkloadKey, int]) -> dict[WorkloadKey, int]:
    """How many of the new revision's replicas come beside as many of the old one as are wanted.
    These go last where there is not enough for all, as nothing may be taken from the old one."""
    latest, serving = observed.deployment.latest, observed.deployment.serving
    strategy = shared_strategy(observed.deployment)
    if serving is None or strategy is None or not strategy.needs_room:
        return {}
    beyond = {}
    for service in observed.services[latest.number]:
        key = service.workload.key
        alike = [k for k in counts if k.revision != key.revision and k.service == key.service]
        there, wanted = sum(counts[k] for k in alike), rollout_size(observed, service)
        beyond[key] = min(counts.get(key, 0), max(0, there + counts.get(key, 0) - wanted))
    return beyond


def phase_of(deployment: Deployment, found: Shift | None, replicas: Iterable[Replica]) -> Phase:
    """Where the roll-out of the latest revision is. `found`: how it stands while it goes on;
    `replicas` are all of the deployment."""
    latest = deployment.latest
    if deployment.wanted is not DesiredState.RUNNING:
        return Phase.NONE
    if latest.outcome is RolloutOutcome.FAILED:
        return Phase.STOPPED
    if latest.outcome is RolloutOutcome.DEPLOYING:
        return Phase.STARTING if found is None else found.phase
    before = any(replica.key.revision != latest.number for replica in replicas)
    return Phase.DRAINING if before else Phase.DONE


def is_rolled_out(observed: Observed, service: Service) -> bool:
    """Whether enough replicas are ready: all that the machine has room for, and at least one."""
    replicas = observed.replicas_of(service.workload.key)
    ready = sum(r.state is ReplicaState.READY for r in replicas)
    waiting = sum(r.state is ReplicaState.PENDING for r in replicas)
    size = observed.allocated(service.workload.key, rollout_size(observed, service))
    return ready >= max(1, size - waiting)


def rollout_size(observed: Observed, service: Service) -> int:
    """As many replicas as the serving revision wants, and at least one, which proves that the new
    revision can start."""
    serving = observed.deployment.serving
    key = service.workload.key
    alike = 0
    if serving is not None:
        old = WorkloadKey(key.organization, key.deployment, serving.number, key.service)
        alike = min(observed.desired.get(old, 0), service.policy.max_replicas)
    by_queries = service.workload.entry and binary_of(observed.deployment.labels) is not None
    return max(1, 0 if by_queries else service.policy.min_replicas, alike)


def _entry(service: Service) -> bool:
    return service.workload.entry


def _has_ready(observed: Observed, service: Service) -> bool:
    return any(
        r.state is ReplicaState.READY and r.id not in observed.draining
        for r in observed.replicas_of(service.workload.key)
    )


def _counted(observed: Observed, replicas: list[Replica], *, callable_: bool) -> EntryReplicas:
    """Where what they call has no ready replica, those that are ready count as starting."""
    ending = [r for r in replicas if r.id in observed.draining or r.state is ReplicaState.STOPPING]
    live = [r for r in replicas if r not in ending]
    ready = sum(r.state is ReplicaState.READY for r in live)
    failing = sum(r.state in _FAILING for r in live)
    return EntryReplicas(
        ready=ready if callable_ else 0,
        starting=len(live) - failing - (ready if callable_ else 0),
        failing=failing,
        waiting=sum(r.state is ReplicaState.PENDING for r in live),
        ending=len(ending),
    )
