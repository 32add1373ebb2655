"""How the roll-out that a deployment was asked for last stands, for who waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.interface import Rollout
from hotplate.platform.store.records import RolloutOutcome


def rollout_of(state: DeploymentState, replicas: Sequence[Replica]) -> Rollout:
    """`replicas` are the deployment's own, of any revision."""
    deployment = state.deployment
    latest = deployment.latest
    mine = [replica for replica in replicas if replica.key.revision == latest.number]
    over = state.settled.is_set()
    builds = dict.fromkeys(replica.build_log for replica in mine if replica.build_log)
    held_up = any(r.state in (ReplicaState.PENDING, ReplicaState.BACKOFF) for r in mine)
    return Rollout(
        reason=deployment.reason,
        over=over,
        failed=over and latest.outcome is RolloutOutcome.FAILED,
        log_tail=latest.log_tail if over else (),
        build_logs=tuple(builds),
        held_up=held_up or bool(builds) or bool(state.short),
    )
