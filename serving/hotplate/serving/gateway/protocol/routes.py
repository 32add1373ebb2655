"""The gateway's instructions and reports: what it is told to serve, what it says of demand.

Everything here is plain data that travels as JSON between the control plane and a gateway,
which may run on another machine.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hotplate.serving.gateway.protocol.cors_rules import Cors


@dataclass(frozen=True)
class ReplicaRoute:
    """One replica that requests may go to."""

    id: str
    address: str
    """host:port, or unix: and a socket's path"""
    concurrency: int = 1
    """Its slots; where it learns, those that it begins with."""
    draining: bool = False
    """Finishes what it has, gets nothing new."""
    foreign: int = 0
    """Slots that requests have which other gateways sent: they are not to be given."""
    worker: bool = False
    """Our worker, which tells what a connection cannot; anything else may be any HTTP server."""
    learns: bool = False
    """How many it has from there on is learnt from what it shows (`adaptive_limit.py`)."""
    least: int = 1
    """What is learnt is never lowered below this."""


FIRST_SLOTS: Final = 32
"""Of a replica that learns how many it has, of a revision of which nothing is known."""
TASKS = "@tasks"
"""Ends the name of the route on which a deployment's kept tasks have slots of their own."""


@dataclass(frozen=True)
class Route:
    """One listening address with its queue and the replicas behind it."""

    name: str
    """`organization/deployment` for what the public calls, a `WorkloadKey` for a dependency."""
    host: str
    port: int
    """0 = nobody calls: only tasks wait here."""
    replicas: tuple[ReplicaRoute, ...] = ()
    queue_limit: int = 1000
    """Requests held at most; one more is refused."""
    queue_limit_bytes: int = 256 << 20
    body_limit_bytes: int = 1 << 30
    timeout_s: float = 60.0
    """Per request, counted from when a replica is ready."""
    hold_limit_s: float = 1800.0
    """How long a request waits for the first replica at most (a cold start's limit)."""
    internal: bool = False
    """Called by other services of its revision only: pickle bodies are allowed."""
    secret_digest: str = ""
    """SHA-256 (hex) of the secret of an internal route's callers; empty = nobody has it."""
    slots_from: str = ""
    """Where the number of its replicas' slots is from, for operators: `learnt (async methods)`."""
    schema: str = ""
    """The JSON that `GET /schema.json` answers when no replica is ready; empty = ask a replica."""
    ready_path: str = "/readyz"
    """What a replica answers when it is ready; a service's path prefix stands before it."""
    tasks: tuple[str, ...] = ()
    """Paths of BentoML tasks, which are submitted, asked after and fetched below them. Not known
    of an internal route, where all paths that look like it are taken for some."""
    tasks_apart: bool = False
    """Tasks that are kept have slots of their own, on a route of that name and `TASKS`."""
    cors: Cors | None = None
    """Which pages may call it, for what the gateway itself answers; None = it says nothing."""
    cors_in_replica: bool = False
    """Only its replicas know which pages may call it: the gateway refuses none."""
    token_digests: tuple[str, ...] | None = None
    """SHA-256 (hex) of the bearer tokens that are let in; None = anybody."""
    organization_header: str = ""
    """Where callers, who are trusted to, say which organization asks; empty = they are one."""
    priority_header: bool = False
    """Whether callers, who are trusted to, say with `Priority` how urgent a request is."""
    weights: tuple[tuple[str, float], ...] = ()
    """Shares of the slots per organization; one that is not named has 1."""
    may_run_twice: bool = False
    """Its requests do no harm when a replica that died has run some of one already."""
    tls_certificate: str = ""
    """PEM file with the certificate and its chain; empty = plain HTTP."""
    tls_key: str = ""
    """PEM file with the certificate's key; empty = it is in the certificate's file."""
    relayed: bool = False
    """Another gateway owns it: requests are passed on to it, and all that is decided is its."""
    waits_for: str = ""
    """What a caller is told of why no replica is ready; empty = nothing is known."""
    refuse: str = ""
    """When not empty, every request is refused with 503 and this sentence (terminated, failed)."""


@dataclass(frozen=True)
class RouteTable:
    """Everything one gateway serves. A higher version replaces a lower one whole."""

    version: int
    routes: tuple[Route, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"type": "routes", **asdict(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> RouteTable:
        return RouteTable(version=data["version"], routes=tuple(map(_route, data["routes"])))


@dataclass(frozen=True)
class RouteDemand:
    """What one route has to do right now, and has done since the last report."""

    in_flight: int = 0
    queued: int = 0
    completed: int = 0
    """Answers finished since the gateway started."""
    refused: int = 0
    service_s: float = 0.0
    """Exponentially weighted mean of a request's time in its replica; 0 = none seen."""
    busy: Mapping[str, int] = field(default_factory=dict)
    """Slots taken, per replica id (also of draining ones; absent = none)."""
    learnt: Mapping[str, int] = field(default_factory=dict)
    """How many slots are right, as far as it is known, per id of the replicas that learn."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    """Of those, the slots that kept tasks have, per replica id."""
    out: Mapping[str, str] = field(default_factory=dict)
    """Why a replica gets no requests for now, per id of those that get none."""
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Requests answered with an error of the gateway's own since it started, by code."""
    abandoned: Mapping[str, int] = field(default_factory=dict)
    """Handlers of WebSockets that go on without a slot though their callers have gone, per replica
    id (absent = none)."""
    error: str = ""
    """Why the route is not served, e.g. its port is taken."""
    owned: bool = True
    """Whether this gateway has the route's queue and slots; another's word counts otherwise."""
    peak: int = 0
    """The most requests in flight and queued at once since the last report."""

    @property
    def demand(self) -> int:
        return self.in_flight + self.queued


class Change(enum.Enum):
    """How much of news a change of a route's demand is."""

    COUNTS = "counts"
    """A number is not what it was."""
    BEGAN = "began"
    """There was nothing to do and now there is."""
    DRAINED = "drained"
    """A replica that was to finish has finished."""


@dataclass(frozen=True)
class DemandReport:
    """Sent at once when a route goes from no demand to some, else batched (0.2 s)."""

    version: int
    """The route table that the gateway has in force."""
    routes: Mapping[str, RouteDemand]

    def to_json(self) -> dict[str, Any]:
        return {"type": "demand", **asdict(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> DemandReport:
        return DemandReport(
            version=data["version"],
            routes={name: RouteDemand(**demand) for name, demand in data["routes"].items()},
        )


def _route(data: Mapping[str, Any]) -> Route:
    digests, cors = data["token_digests"], data["cors"]
    return Route(
        **{
            **data,
            "replicas": tuple(ReplicaRoute(**replica) for replica in data["replicas"]),
            "tasks": tuple(data["tasks"]),
            "cors": None if cors is None else Cors.from_json(cors),
            "token_digests": None if digests is None else tuple(digests),
            "weights": tuple((name, weight) for name, weight in data["weights"]),
        }
    )
