"""How the roll-out that a deployment was asked for last stands, for who waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.store.records import RolloutOutcome


@dataclass(frozen=True)
class Rollout:
    """As of this instant."""

    reason: str
    """The sentence about the deployment's status."""
    over: bool = False
    """Nothing more will become of it by itself."""
    failed: bool = False
    log_tail: tuple[str, ...] = ()
    """Last lines of what the replica printed that it failed with."""
    build_logs: tuple[str, ...] = ()
    """Files with the output of the builds that it waits for."""
    held_up: bool = False
    """It waits for room, a build, or the end of a pause after a crash: who waits should know."""


UNSEEN = Rollout("it has not been looked at yet")


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
