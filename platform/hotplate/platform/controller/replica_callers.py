"""Which replicas call other deployments, and with which keys.

A key is good as long as the engine has its replica: nothing has to be taken back when that ends, or
after the control plane was killed.
"""

from __future__ import annotations

from collections.abc import Iterable

from hotplate.deploy.engine import Engine, Replica
from hotplate.platform.controller.deployment_state import DeploymentState
from hotplate.platform.controller.gateways.route_links import Tokens
from hotplate.platform.controller.interface import CallingReplica
from hotplate.platform.spec.replica_keys import ReplicaKeys, replica_of
from hotplate.platform.store.tokens import token_digest
from hotplate.serving.gateway.protocol.routes import AcceptedToken


class ReplicaCallers:
    def __init__(
        self, engine: Engine, states: Iterable[DeploymentState], keys: ReplicaKeys
    ) -> None:
        """`states` are those of all deployments, as they come and go."""
        self._engine = engine
        self._states = states
        self._keys = keys

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

    def added_to(self, tokens: Tokens) -> Tokens:
        """The tokens that gateways take, with the keys of all replicas that there are."""
        callers = [state for state in self._states if state.calls]
        if not callers:
            return tokens
        found = {organization: list(accepted) for organization, accepted in tokens.items()}
        named = {(each.key, each.named_inside): each for each in self._engine.replicas()}
        for (key, name), replica in named.items():
            for state in callers:
                if state.owns(key) and (opens := _opens(state, replica)):
                    digest = token_digest(self._keys.key(key, name))
                    found.setdefault(key.organization, []).extend(
                        AcceptedToken(digest, deployment=name) for name in opens
                    )
        return {organization: tuple(accepted) for organization, accepted in found.items()}


def _opens(state: DeploymentState, replica: Replica) -> tuple[str, ...]:
    service = state.find(replica.key)
    return () if service is None else service.workload.calls
