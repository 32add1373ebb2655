"""The logs of a deployment's replicas, and of no others."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress

from hotplate.deploy.engine import Engine
from hotplate.deploy.errors import UnknownReplica
from hotplate.platform.controller.deployment_states import DeploymentStates


class ReplicaLogs:
    def __init__(self, engine: Engine, states: DeploymentStates) -> None:
        self._engine = engine
        self._states = states

    async def last_lines(
        self, deployment_id: int, replica: str, lines: int
    ) -> dict[str, list[str]]:
        """By replica; `replica` empty = all of the deployment's. Raises UnknownReplica."""
        if replica:
            self._check_owned(deployment_id, replica)
            return {replica: await self._engine.logs(replica, lines)}
        found = {}
        for name in self._there(deployment_id) or self._seen(deployment_id):
            with suppress(UnknownReplica):
                found[name] = await self._engine.logs(name, lines)
        return found

    def follow(
        self, deployment_id: int, replica: str, lines: int | None
    ) -> AsyncGenerator[str, None]:
        """The last lines of one of its replicas and what comes. Raises UnknownReplica."""
        self._check_owned(deployment_id, replica)
        return self._engine.follow(replica, lines)

    def _check_owned(self, deployment_id: int, replica: str) -> None:
        if replica not in (*self._there(deployment_id), *self._seen(deployment_id)):
            raise UnknownReplica(
                f"The deployment has no replica {replica!r} now and had none of that id lately."
            )

    def _there(self, deployment_id: int) -> list[str]:
        state = self._states.get(deployment_id)
        return [] if state is None else [r.id for r in state.mine(self._engine.replicas())]

    def _seen(self, deployment_id: int) -> tuple[str, ...]:
        state = self._states.get(deployment_id)
        return () if state is None else state.seen
