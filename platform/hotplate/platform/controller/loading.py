"""Reading a deployment from the store, with all that a step needs of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.planning.messages import no_ports, uncallable
from hotplate.platform.controller.planning.workloads import WorkloadRules, services_of
from hotplate.platform.errors import PortsExhausted
from hotplate.platform.spec.bento_manifest import (
    dependency_services,
    model_tags,
    named_deployments,
)
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Artifact, Deployment, Kind, Revision


class Loader:
    """Reads deployments from the store, with what the services that others call are reached at."""

    def __init__(self, store: Store, rules: WorkloadRules) -> None:
        self._store = store
        self._rules = rules

    def load(
        self, deployment_id: int, running: Collection[WorkloadKey], known: DeploymentState | None
    ) -> DeploymentState | None:
        """The deployment as the store has it now, in one transaction; None when it is gone. Blocks.

        `running` are the workloads that have replicas: those of an older revision need its
        services until they are drained. Whatever no other revision needs is given back. `known`
        stays as it is, for whoever looks at it meanwhile.
        """
        with self._store.database.together():
            return self._load(deployment_id, running, known)

    def _load(
        self, deployment_id: int, running: Collection[WorkloadKey], known: DeploymentState | None
    ) -> DeploymentState | None:
        deployment = self._store.deployments.get(deployment_id)
        if deployment is None:
            return None
        state = replace(known or DeploymentState(deployment), deployment=deployment)
        state.numbers = frozenset(self._store.revisions.numbers(deployment_id))
        needed = {r.number for r in state.kept()}
        needed |= {key.revision for key in running if state.owns(key)}
        state.keep_only(needed)
        for number in state.portless:
            state.services.pop(number, None)
        self._store.revisions.release_ports(deployment_id, needed)
        if len(state.numbers) > self._rules.revisions_kept:
            self._store.revisions.forget_older(deployment_id, self._rules.revisions_kept, needed)
        portless = {}
        for number in sorted(needed - state.services.keys()):
            revision = self._store.revisions.get(deployment_id, number)
            try:
                revision = self._with_ports(revision)
            except PortsExhausted as error:
                portless[number] = no_ports(str(error))
            state.services[number] = services_of(
                deployment, revision, self._models(deployment, revision), self._rules
            )
        state.portless = portless
        members = [service for services in state.services.values() for service in services]
        state.calls = frozenset(name for each in members for name in each.workload.calls)
        state.uncallable = self._uncallable(state)
        for service in state.answering():
            name = state.memory_key(service.name)
            state.memories[service.name] = self._store.learnt.get(name)
        return state

    def _uncallable(self, state: DeploymentState) -> str:
        """Which of the deployments that its bentos name cannot be called; empty = all can."""
        manifests = [revision.bento.manifest for revision in state.kept()]
        named = {each: None for manifest in manifests for each in named_deployments(manifest)}
        if not named:
            return ""
        organization = state.deployment.organization.id
        wanted = self._store.deployments.wanted(organization, [each.name for each in named])
        return uncallable(list(named), wanted, self._rules.namespace)

    def _with_ports(self, revision: Revision) -> Revision:
        """The revision, with a gateway port for every service that others call, where they need
        one. Raises PortsExhausted."""
        called = (
            dependency_services(revision.bento.manifest) if self._rules.inner.need_ports else ()
        )
        if set(called) <= set(revision.ports):
            return revision
        return replace(revision, ports=self._store.revisions.allocate_ports(revision.id, called))

    def _models(self, deployment: Deployment, revision: Revision) -> list[Artifact]:
        organization = deployment.organization.id
        return [
            self._store.artifacts.get(organization, Kind.MODEL, *tag.split(":", 1))
            for tag in model_tags(revision.bento.manifest)
        ]
