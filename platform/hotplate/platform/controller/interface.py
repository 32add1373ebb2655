"""What the API may ask of the controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hotplate.autoscaler.sharing.allocation import Quota
from hotplate.autoscaler.sharing.amounts import Amounts
from hotplate.machine.access.metrics_reader import MetricsReader
from hotplate.platform.controller.planning.addresses import CallTarget
from hotplate.platform.live.change_feed import ChangeFeed
from hotplate.platform.series.recorder import SeriesRecorder
from hotplate.platform.store.records import DemandRecord, Deployment, Organization


@dataclass(frozen=True)
class Rollout:
    """How a roll-out stands at this instant, for a client that waits for it."""

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
    """It waits for room, a build, or the end of a pause after a crash: clients should see it."""


UNSEEN = Rollout("the controller has not handled it yet")


@dataclass(frozen=True)
class CallingReplica:
    """A replica that asks the API with its key."""

    id: str
    organization: Organization
    opens: frozenset[str]
    """Names of the deployments that its bento names: what the key is good for."""


@dataclass(frozen=True)
class Subscribers:
    """Functions to call when the controller learns what concerns more than its deployments."""

    notify: Callable[[str, str], None] = lambda kind, message: None
    """Gets what an operator should know: a kind of event and a sentence."""
    quotas_read: Callable[[Mapping[str, Quota]], None] = lambda quotas: None
    """Gets the organizations' quotas, by name, whenever they were read."""
    readers_read: Callable[[Sequence[MetricsReader]], None] = lambda readers: None
    """Gets the tokens that show metrics, whenever they were read."""


NO_SUBSCRIBERS = Subscribers()


class ControllerApi(Protocol):
    """What HTTP handlers call, on the event loop's thread.

    Nothing here waits for a step unless it says so.
    """

    series: SeriesRecorder
    """Follows what deployments do."""
    changes: ChangeFeed
    """Tells which deployments have changed."""
    ready: asyncio.Event
    """Set when deployments are looked after: they were all looked at, and a gateway
    serves them."""

    def poke(self, deployment_id: int) -> None:
        """The store changed for this deployment: look again, now."""

    async def outcome(self, deployment_id: int, timeout_s: float) -> None:
        """Return when the roll-out asked for last has ended (any way), or after `timeout_s`."""

    def rollout(self, deployment_id: int) -> Rollout:
        """How the roll-out asked for last stands."""

    def live(self, deployment_id: int) -> dict[str, Any]:
        """Replicas, demand and the last decision per service, and how the last roll-out stands
        (`rollout`, absent while the controller has not handled it), as JSON (for status pages)."""

    def demands(self, deployment_id: int) -> Sequence[DemandRecord]:
        """Demand that deciders saw lately and that is not in the store yet, the oldest first."""

    async def logs(self, deployment_id: int, replica: str, lines: int) -> dict[str, list[str]]:
        """The last log lines per replica id; `replica` empty = all of the deployment's."""

    def follow_log(
        self, deployment_id: int, replica: str, lines: int | None
    ) -> AsyncGenerator[str, None]:
        """The last lines of one of its replicas, None = all, and what comes, as an engine's
        `follow`. Raises UnknownReplica, now or at the first piece."""

    def call_target(self, deployment: Deployment) -> CallTarget:
        """Where the API calls a deployment for somebody who may."""

    def tokens_changed(self) -> None:
        """Tokens of an organization have changed: let callers in by them, now."""

    def replica_with(self, key: str) -> CallingReplica | None:
        """Whose key it is; None where there is no such replica now."""

    def quotas_changed(self) -> None:
        """The store's quotas have changed: hold to them, now."""

    async def admit(self, organization: str) -> None:
        """Returns where it may have deployments beside those that there are. Raises Alone."""

    def least(
        self,
        manifest: Mapping[str, Any],
        config: Mapping[str, Any],
        labels: Sequence[Mapping[str, str]],
    ) -> Amounts:
        """What the `min_replicas` of a bento's services in a deployment's config take."""

    def notes(
        self, manifest: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Sequence[tuple[str, str]]:
        """Events of a deployment that gets this config: kinds and sentences.

        Raises Invalid where a replica of one of its services could never run here.
        """

    def usage(self, organization: str) -> Amounts:
        """What the organization's replicas have now, also those that end."""

    def instance_types(self) -> Sequence[dict[str, Any]]:
        """The instance types that this installation offers, as BentoCloud's JSON."""
