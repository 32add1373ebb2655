"""The states of all deployments that are looked after, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Set

from hotplate.deploy.workload import Workload, WorkloadKey
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.scaling.allocations import Allocations
from hotplate.platform.controller.scaling.deciders import Scaling
from hotplate.platform.store.records import DesiredState, RolloutOutcome


class DeploymentStates:
    """The loop looks here for whose turn it is, and the reconciler's steps change what is here.

    For the event loop's thread alone.
    """

    def __init__(self) -> None:
        self.scaling = Scaling()
        """The deciders of all services."""
        self.allocations = Allocations()
        """What each workload may have of everything that there is."""
        self._by_id: dict[int, DeploymentState] = {}
        self._versions: dict[int, list[int]] = {}
        """Of a deployment with a canary, those that are its versions."""
        self._stale: set[int] = set()
        self._unread: dict[int, asyncio.Event] = {}
        """Deployments that exist and whose services are not known yet; set once that is over."""
        self._turned: set[tuple[str, str]] = set()
        """Organizations and names of deployments that have come, gone or been stopped."""

    def __iter__(self) -> Iterator[DeploymentState]:
        return iter(self._by_id.values())

    def get(self, deployment_id: int) -> DeploymentState | None:
        """None while it has not been read from the store, and once it is gone."""
        return self._by_id.get(deployment_id)

    async def read(self, deployment_id: int) -> DeploymentState | None:
        """Once a step has read it from the store: whoever else read it would put another state in
        the place of the one that the step has. None if there is none, or none any longer."""
        if (unread := self._unread.get(deployment_id)) is not None:
            await unread.wait()
        return self.get(deployment_id)

    def let_waiters_go(self) -> None:
        """There will be no more steps for which anybody could wait."""
        for unread in self._unread.values():
            unread.set()
        for state in self:
            state.settled.set()

    def versions_of(self, deployment_id: int) -> list[DeploymentState]:
        """Its canary's, the oldest first."""
        return [self._by_id[version] for version in self._versions.get(deployment_id, ())]

    def expect(self, deployment_id: int) -> None:
        """There is such a deployment, and a step for it will follow."""
        if deployment_id not in self._by_id:
            self._unread.setdefault(deployment_id, asyncio.Event())

    def mark_stale(self, deployment_id: int) -> None:
        """The store has changed for it: the next step reads it again."""
        self._stale.add(deployment_id)

    def is_stale(self, deployment_id: int) -> bool:
        """Whether the store has changed since it was read."""
        return deployment_id in self._stale

    def clear_stale(self, deployment_id: int) -> None:
        """It is read now: what changes from here on is for the next time."""
        self._stale.discard(deployment_id)

    def put(self, state: DeploymentState) -> None:
        """Keep a state as it was read; deciders of services that it no longer has are forgotten."""
        known = self._by_id.get(state.deployment.id)
        if known is None or known.deployment.wanted is not state.deployment.wanted:
            self._turn(state)
        if known is None and state.deployment.parent_id is not None:
            self._versions.setdefault(state.deployment.parent_id, []).append(state.deployment.id)
        self._by_id[state.deployment.id] = state
        self._was_read(state.deployment.id)
        self.scaling.forget(lambda key: state.owns(key) and state.find(key) is None)

    def forget(self, deployment_id: int) -> None:
        """The deployment is gone, so nothing is kept of it."""
        self._stale.discard(deployment_id)
        self._was_read(deployment_id)
        self._versions.pop(deployment_id, None)
        if state := self._by_id.pop(deployment_id, None):
            self._turn(state)
            if siblings := self._versions.get(state.deployment.parent_id or 0):
                siblings.remove(deployment_id)
            self.scaling.forget(state.owns)
            self.scaling.unswitch(deployment_id)

    def to_hear(self) -> list[int]:
        """The deployments that call others by name of which some have come, gone or been stopped
        since the last call: they are to be read again."""
        turned, self._turned = self._turned, set()
        heard = []
        for deployment_id, state in self._by_id.items() if turned else ():
            organization = state.deployment.organization.name
            if any((organization, name) in turned for name in state.calls):
                self.mark_stale(deployment_id)
                heard.append(deployment_id)
        return heard

    def expected(self, there: Iterable[WorkloadKey]) -> list[Workload]:
        """The workloads that may have replicas; `there` are those that have some."""
        present = self.allocations.ordered().union(there)
        return [workload for state in self for workload in _expected(state, present)]

    def _was_read(self, deployment_id: int) -> None:
        if (unread := self._unread.pop(deployment_id, None)) is not None:
            unread.set()

    def _turn(self, state: DeploymentState) -> None:
        if state.deployment.parent_id is None:
            self._turned.add((state.deployment.organization.name, state.deployment.name))

    def manifests(self) -> frozenset[str] | None:
        """Manifests of all files that replicas use or would use; None while not all are known."""
        if self._unread:
            return None
        return frozenset(
            manifest
            for state in self._by_id.values()
            for services in state.services.values()
            for service in services
            for manifest in service.workload.manifests
        )


def _expected(state: DeploymentState, present: Set[WorkloadKey]) -> list[Workload]:
    """Of what is wanted, asleep or not, and what of those that are `present` still finishes its
    requests."""
    running = state.deployment.wanted is DesiredState.RUNNING
    wanted = {
        revision.number
        for revision in state.kept()
        if running and revision.outcome is not RolloutOutcome.FAILED
    }
    return [
        service.workload
        for number, services in state.services.items()
        for service in services
        if number in wanted or service.workload.key in present
    ]
