"""What a deployment asks for, of all that there is for all deployments."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hotplate.autoscaler.sharing.allocation import AllocationRequest
from hotplate.autoscaler.sharing.amounts import Amounts
from hotplate.deploy.workload import Workload, WorkloadKey
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.planning.observed import Observed
from hotplate.platform.controller.planning.plan import desired_counts, running_counts
from hotplate.platform.controller.planning.turnovers import beyond_wanted
from hotplate.platform.controller.planning.workloads import amounts_of
from hotplate.platform.controller.scaling.deciders import Recommendation
from hotplate.platform.spec.label_settings import LabelSettings


def resource_requests(
    state: DeploymentState,
    observed: Observed,
    recommended: Iterable[Recommendation],
    footprint_bytes: Callable[[WorkloadKey], int],
) -> list[AllocationRequest[WorkloadKey]]:
    """One for each workload that is to have replicas, from what was observed and recommended.

    A replica that asks for no memory takes of the machines what others of its service have taken
    (`footprint_bytes`, 0 = not known), and of a quota always the same.
    """
    deployment = observed.deployment
    serving = deployment.serving
    replacing = deployment.latest.number if serving not in (None, deployment.latest) else None
    priority = LabelSettings.of(deployment.labels).priority
    kept = {each.key: each.decision.kept for each in recommended}
    counts = desired_counts(observed)
    extra = beyond_wanted(observed, counts)
    running = running_counts(observed, counts)
    return [
        AllocationRequest(
            key,
            key.organization,
            amounts_of(service.workload.resources),
            count,
            kept=min(count, kept.get(key, 0) + extra.get(key, 0)),
            running=running[key],
            priority=priority,
            replacing=key.revision == replacing and not extra,
            takes=_takes(service.workload, footprint_bytes(key)),
        )
        for key, count in counts.items()
        if (service := state.find(key))
    ]


def _takes(workload: Workload, footprint_bytes: int) -> Amounts | None:
    if workload.resources.memory_bytes or not footprint_bytes:
        return None
    return amounts_of(workload.resources)._replace(memory_bytes=footprint_bytes)
