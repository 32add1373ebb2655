"""Which replicas call other deployments, and with which keys; and with which one the API does.

A replica's key is good as long as the engine has its replica: nothing has to be taken back when
that ends, or after the control plane was killed.
"""

from __future__ import annotations

from collections.abc import Iterable

from hotplate.deploy.engine import Engine, Replica
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.gateways.route_links import Tokens
from hotplate.platform.controller.interface import CallingReplica
from hotplate.platform.controller.planning.addresses import Addresses, CallTarget
from hotplate.platform.spec.replica_keys import ReplicaKeys, replica_of
from hotplate.platform.store.records import Deployment
from hotplate.platform.store.tokens import token_digest
from hotplate.serving.gateway.protocol.routes import AcceptedToken


class ReplicaCallers:
    def __init__(
        self,
        engine: Engine,
        states: Iterable[DeploymentState],
        keys: ReplicaKeys,
        addresses: Addresses,
    ) -> None:
        """`states` are those of all deployments, as they come and go; `addresses` says where the
        API calls them."""
        self._engine = engine
        self._states = states
        self._keys = keys
        self._addresses = addresses

    def replica_with(self, key: str) -> CallingReplica | None:
        """Whose key it is; None where there is no such replica, or it calls nobody by name."""
        name = replica_of(key)
        found = (each for each in self._engine.replicas() if each.named_inside == name)
        replica = next((each for each in found if self._keys.is_key(key, each.key, name)), None)
        if replica is None:
            return None
        for state in self._states:
            if state.owns(replica.key) and (opens := _opens(state, replica)):
                organization = state.deployment.organization
                return CallingReplica(replica.id, organization, frozenset(opens))
        return None

    def call_target(self, deployment: Deployment) -> CallTarget:
        """Where the API calls a deployment."""
        return self._addresses.called(deployment, self._keys.of_api(deployment.organization.uid))

    def added_to(self, tokens: Tokens) -> Tokens:
        """The tokens that gateways take, with the keys of all replicas that there are, and of the
        API where an organization has protected deployments."""
        callers = [state for state in self._states if state.calls]
        keys = self._of_api()
        if not callers and not keys:
            return tokens
        found = {organization: list(accepted) for organization, accepted in tokens.items()}
        for organization, accepted in keys.items():
            found.setdefault(organization, []).append(accepted)
        named = {(each.key, each.named_inside): each for each in self._engine.replicas()}
        for (key, name), replica in named.items():
            for state in callers:
                if state.owns(key) and (opens := _opens(state, replica)):
                    digest = token_digest(self._keys.key(key, name))
                    found.setdefault(key.organization, []).extend(
                        AcceptedToken(digest, deployment=name) for name in opens
                    )
        return {organization: tuple(accepted) for organization, accepted in found.items()}

    def _of_api(self) -> dict[str, AcceptedToken]:
        """By the name of each organization with a protected deployment."""
        found: dict[str, AcceptedToken] = {}
        for state in self._states:
            organization = state.deployment.organization
            closed = organization.name not in found and any(r.tokens_of for r in state.routes)
            if closed and (key := self._keys.of_api(organization.uid)):
                found[organization.name] = AcceptedToken(token_digest(key))
        return found


def _opens(state: DeploymentState, replica: Replica) -> tuple[str, ...]:
    service = state.find(replica.key)
    return () if service is None else service.workload.calls
