"""What a control plane stands on, which differs between one machine and a cluster.

`local_node` puts one together for this machine, `cluster.assembly` for a Kubernetes cluster; the
control plane itself does not know which it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hotplate.deploy.engine import Engine
from hotplate.machine.access.metrics_reader import MetricsReader
from hotplate.platform.api.hotplate.environments import NodesEnvironments
from hotplate.platform.api.hotplate.models import Holdings
from hotplate.platform.controller.gateways.route_links import RouteLinks
from hotplate.platform.controller.planning.addresses import Addresses
from hotplate.platform.controller.planning.ceiling import Ceiling
from hotplate.platform.controller.planning.inner_addresses import InnerAddresses
from hotplate.platform.controller.planning.tenancy import Tenancy
from hotplate.platform.instance_type import InstanceType
from hotplate.platform.series.recorder import UsageSource
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import EventRecord
from hotplate.platform.upkeep.collector import CollectedCode, CollectedEnvironments
from hotplate.platform.upkeep.health import Check, PartRefusals
from hotplate.platform.upkeep.sweeper import SweptAgent, SweptCode, SweptEnvironments


class KeptEnvironments(CollectedEnvironments, SweptEnvironments, NodesEnvironments, Protocol):
    """The Python environments of bentos, wherever they are kept."""


class KeptCode(CollectedCode, SweptCode, Protocol):
    """What replicas have compiled, wherever it is kept."""


class KeptEvents(Protocol):
    """What happened to the platform itself."""

    def add(self, kind: str, message: str) -> None:
        """Keep what happens now. It costs nobody who says it."""

    async def last(self, limit: int) -> Sequence[EventRecord]:
        """Newest first."""

    def mark(self) -> object:
        """Another one when there are more."""

    async def finish(self) -> None:
        """Returns once all that was added is kept."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """`close` ends no replica."""

    engine: Engine
    environments: KeptEnvironments
    compiled: KeptCode
    logs: SweptCode
    """Those of replicas that have ended."""
    files: SweptAgent
    """The copies of files that are swept from here."""
    sizes: Mapping[str, InstanceType]
    """The instance types where the operator offers none."""
    ceiling: Ceiling
    memory_bytes: int
    """What warm processes have a share of."""
    addresses: Addresses
    inner: InnerAddresses
    """Where services of one bento reach each other."""
    tenancy: Tenancy
    """Which organizations may be served beside each other."""
    unwalled: str
    """Which walls around replicas are missing; empty = none."""
    described: str
    """In words, for the log."""
    work: Sequence[Callable[[], Awaitable[None]]]
    """What runs beside the controller until it is cancelled."""
    install_readers: Callable[[Sequence[MetricsReader]], None]
    """Tell agents who may read their metrics."""
    usage: UsageSource
    """What replicas have used, as far as it is known."""
    holdings: Callable[[], Awaitable[Holdings]]
    """What each node that answers has of the files of bentos and models."""
    checks: Callable[[RouteLinks, Store], Sequence[Check]]
    roles: Callable[[], Sequence[dict[str, Any]]]
    """The platform's processes, as JSON."""
    disks: Callable[[], Sequence[dict[str, Any]]]
    close: Callable[[], Awaitable[None]]
    refusals: Sequence[PartRefusals] = ()
    may_go_on: Callable[[str, Collection[str]], bool] = lambda gateway, come: False
    """Whether a gateway that is not connected may run out of sight, given all that have come; from
    any thread."""
