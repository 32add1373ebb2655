"""The gateway's instructions and reports: the routes that it serves, and their demand.

Everything here is plain data that travels as JSON between the control plane and a gateway,
which may run on another machine.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hotplate.machine.access.metrics_reader import MetricsReader
from hotplate.serving.gateway.protocol.cors_rules import Cors
from hotplate.serving.gateway.protocol.route_counts import RouteCounts
from hotplate.serving.gateway.protocol.version_shares import VersionShare


@dataclass(frozen=True)
class ReplicaRoute:
    """One replica that requests may go to."""

    id: str
    address: str
    """host:port, or unix: and a socket's path"""
    concurrency: int = 1
    """Its slots; if they are learnt, the number to begin with."""
    draining: bool = False
    """It finishes its requests and gets no new ones."""
    foreign: int = 0
    """Slots that requests of other gateways have; they must not be granted."""
    worker: bool = False
    """It runs our worker, which reports what a connection cannot show; otherwise it is any HTTP
    server."""
    learns: bool = False
    """Whether the number of its slots is learnt (`adaptive_limit.py`)."""
    least: int = 1
    """The learnt number is never lowered below this."""
    version: str = ""
    """The version and revision that its answers count for, such as `main@7`; empty = they are not
    counted."""
    uid: str = ""
    """What its worker calls itself: it takes requests for no other. Empty = it takes all."""


@dataclass(frozen=True)
class PodSource:
    """Replicas that the gateway finds by itself: the pods of a Service of Kubernetes."""

    service: str
    """`namespace/name`"""
    like: ReplicaRoute
    """What they have in common: all but id, uid, address and whether they drain."""


FIRST_SLOTS: Final = 32
"""The first number of learnt slots, of a revision of which nothing is known."""
SHARED: Final = "@hosts"
SHARED_TLS: Final = "@hosts-tls"
INTERNAL: Final = "@internal"
"""The names of the routes at whose addresses those with `hosts` are reached: the public ones, the
same over TLS, and those that services of one deployment have for each other."""
TASKS = "@tasks"
"""The end of the name of a route on which a deployment's kept tasks have slots of their own."""


class RouteType:
    """How a version is chosen for a request that names none."""

    RANDOM: Final = "random"
    """By weight."""
    HEADER: Final = "header"
    """By the value of the header field `route_by`, whose hash is the request's point."""
    QUERY: Final = "query"
    """By the value of the query's parameter `route_by`."""


@dataclass(frozen=True)
class Route:
    """One listening address with its queue and the replicas behind it."""

    name: str
    """`organization/deployment` of a public route, with `VERSION` and its id of a version's, a
    `WorkloadKey` of a dependency's."""
    host: str
    port: int
    """0 = it has no callers of its own: it has `hosts`, kept tasks, or requests that a public route
    gives to this version."""
    replicas: tuple[ReplicaRoute, ...] = ()
    pods: tuple[PodSource, ...] = ()
    """Where more of its replicas are found than `replicas` names; empty = these are all. Of those
    that are named only what is there is meant, once it is known what is."""
    starting: tuple[str, ...] = ()
    """The addresses of its pods that have no requests yet, but may call others; the gateway sets
    it."""
    queue_limit: int = 1000
    """The most requests that may wait; one more is refused."""
    queue_limit_bytes: int = 256 << 20
    body_limit_bytes: int = 1 << 30
    timeout_s: float = 60.0
    """Per request, counted from when a replica is ready."""
    hold_limit_s: float = 1800.0
    """How long a request waits for the first replica at most (a cold start's limit)."""
    internal: bool = False
    """Called by other services of its revision only: pickle bodies are allowed."""
    secret_digest: str = ""
    """SHA-256 (hex) of the secret of an internal route's callers; empty = no caller has it."""
    slots_from: str = ""
    """Where the number of its replicas' slots comes from, for operators: `learnt (async
    methods)`."""
    schema: str = ""
    """The JSON that `GET /schema.json` answers when no replica is ready; empty = ask a replica."""
    ready_path: str = "/readyz"
    """The path at which a replica says that it is ready, with the service's path prefix."""
    tasks: tuple[str, ...] = ()
    """Paths of BentoML tasks, which are submitted, queried and fetched below them. They are not
    known of an internal route, on which every path that looks like a task's counts as one."""
    tasks_apart: bool = False
    """Whether kept tasks have slots of their own, on a route of that name and `TASKS`."""
    cors: Cors | None = None
    """Which pages may call it, for the gateway's own responses; None = they do not say."""
    cors_in_replica: bool = False
    """Whether only its replicas know which pages may call it: the gateway refuses none."""
    token_digests: tuple[str, ...] | None = None
    """SHA-256 (hex) of the accepted bearer tokens; None = see `tokens_of`."""
    tokens_of: str = ""
    """The organization one of whose tokens, in the same table, is needed; empty = none is."""
    organization_header: str = ""
    """The header in which trusted callers name the organization; empty = all callers are one."""
    priority_header: bool = False
    """Whether trusted callers say with `Priority` how urgent a request is."""
    weights: tuple[tuple[str, float], ...] = ()
    """Weights of organizations; one that is not named has 1."""
    may_run_twice: bool = False
    """Whether a request may be sent again although a replica that died may have run it."""
    tls_certificate: str = ""
    """PEM file with the certificate and its chain; empty = plain HTTP."""
    tls_key: str = ""
    """PEM file with the certificate's key; empty = it is in the certificate's file."""
    beyond: tuple[ReplicaRoute, ...] = ()
    """If it is relayed: the replicas that its owner sends requests to. The gateway sets it."""
    relayed: bool = False
    """Another gateway owns it: requests are passed on to that one, which decides everything."""
    waits_for: str = ""
    """Why no replica is ready, for callers; empty = that is not known."""
    versions: tuple[VersionShare, ...] = ()
    """The versions beside `main`, which is this route itself. Their routes are in the same table;
    one whose route is missing gets nothing. Empty = the deployment has no canary."""
    route_type: str = RouteType.RANDOM
    """One of `RouteType`."""
    route_by: str = ""
    """The header field or parameter; a request without a value goes to `main`."""
    version: str = ""
    """The version that its responses name, where the deployment has a canary; the gateway sets it
    (`admission/version_routes.py`)."""
    refuse: str = ""
    """When not empty, every request is refused with 503 and this sentence (terminated, failed)."""
    hosts: tuple[str, ...] = ()
    """The names by which callers choose it at the address that several routes share, as `host_of`
    gives them."""

    @property
    def protected(self) -> bool:
        """Whether its callers need a bearer token."""
        return self.token_digests is not None or bool(self.tokens_of)


@dataclass(frozen=True)
class AcceptedToken:
    """A token that an organization's protected deployments take."""

    digest: str
    """SHA-256, hex."""
    expires_at: float | None = None
    """Unix seconds; None = never."""
    deployment: str = ""
    """The only one that it is good for; empty = all of the organization's."""


@dataclass(frozen=True)
class RouteTable:
    """Everything one gateway serves. A higher version replaces a lower one whole."""

    version: int
    routes: tuple[Route, ...] = ()
    tokens: Mapping[str, tuple[AcceptedToken, ...]] = field(default_factory=dict)
    """By organization, for routes with `tokens_of`."""
    readers: tuple[MetricsReader, ...] = ()
    """The tokens for the metrics."""
    shared: tuple[Route, ...] = ()
    """Where the routes with `hosts` are reached, as routes without replicas. They are the gateway's
    own setting, and never sent to one."""

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "routes",
            "version": self.version,
            "routes": tuple(map(_route_json, self.routes)),
            "tokens": {name: tuple(map(_fields, tokens)) for name, tokens in self.tokens.items()},
            "readers": tuple(map(_fields, self.readers)),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> RouteTable:
        routes = tuple(map(_route, data["routes"]))
        tokens = {
            name: tuple(AcceptedToken(**token) for token in accepted)
            for name, accepted in data.get("tokens", {}).items()
        }
        readers = tuple(map(MetricsReader.from_json, data.get("readers", ())))
        return RouteTable(data["version"], routes, tokens, readers)


@dataclass(frozen=True)
class RouteDemand:
    """The current demand of one route, and what it has done since the last report."""

    in_flight: int = 0
    queued: int = 0
    completed: int = 0
    """Requests completed since the gateway started."""
    refused: int = 0
    service_s: float = 0.0
    """Exponentially weighted mean of a request's time in its replica; 0 = none seen."""
    busy: Mapping[str, int] = field(default_factory=dict)
    """Slots taken, per replica id (also of draining ones; absent = none)."""
    learnt: Mapping[str, int] = field(default_factory=dict)
    """The learnt number of slots, per id of the replicas that learn it."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    """Those of the taken slots that kept tasks have, per replica id."""
    out: Mapping[str, str] = field(default_factory=dict)
    """Why a replica is ejected, per id of the ejected ones."""
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Requests answered with an error of the gateway's own since it started, by code."""
    answers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Answers of replicas to this gateway since it started, per `ReplicaRoute.version` and kind
    (`ANSWER_KINDS`; absent = none). Each is counted by the gateway that gave it its slot, so those
    of all gateways together are the route's, and each goes on counting after it lost the route."""
    abandoned: Mapping[str, int] = field(default_factory=dict)
    """Handlers of WebSockets that go on without a slot after their callers have gone, per replica
    id (absent = none)."""
    error: str = ""
    """Why the route is not served, e.g. its port is taken."""
    owned: bool = True
    """Whether this gateway has the route's queue and slots; otherwise another one's report
    counts."""
    peak: int = 0
    """The most requests in flight and queued at once since the last report."""
    oldest_at: float | None = field(default=None, compare=False)
    """Since when the request that has its slot for longest has it, loop seconds of whoever holds
    this; a report says `oldest_s`, how long that is. None = none has a slot, or an older gateway
    does not say so."""

    @property
    def demand(self) -> int:
        return self.in_flight + self.queued


ANSWER_KINDS = ("2xx", "3xx", "4xx", "5xx", "broken")
"""`broken`: the connection ended before the answer was whole, or none came in time. What a caller
did not wait for is not counted, nor what never reached a replica, nor errors of the gateway's."""


class Change(enum.Enum):
    """How urgent a change of a route's demand is."""

    COUNTS = "counts"
    """A number has changed."""
    BEGAN = "began"
    """There was no demand, and now there is."""
    DRAINED = "drained"
    """A draining replica has finished."""


@dataclass(frozen=True)
class DemandReport:
    """Sent at once when a route goes from no demand to some, else batched (0.2 s)."""

    version: int
    """The version of the route table in force."""
    routes: Mapping[str, RouteDemand]
    used: tuple[str, ...] = ()
    """Digests of tokens that were used and of which that was not said lately."""
    counted: Mapping[str, RouteCounts] = field(default_factory=dict)
    """What was counted since the last report, of the routes that have anything new."""

    def to_json(self, now: float) -> dict[str, Any]:
        """What is sent at `now` (loop seconds)."""
        routes = {}
        for name, demand in self.routes.items():
            sent = routes[name] = _fields(demand)
            oldest_at = sent.pop("oldest_at")
            sent["oldest_s"] = None if oldest_at is None else max(0.0, now - oldest_at)
        return {
            "type": "demand",
            "version": self.version,
            "routes": routes,
            "used": self.used,
            "counted": {name: counts.to_json() for name, counts in self.counted.items()},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any], now: float) -> DemandReport:
        """What came at `now` (loop seconds)."""
        routes = {}
        for name, demand in data["routes"].items():
            oldest_s = demand.get("oldest_s")
            oldest_at = None if oldest_s is None else now - oldest_s
            others = {key: value for key, value in demand.items() if key != "oldest_s"}
            routes[name] = RouteDemand(**others, oldest_at=oldest_at)
        counted = {n: RouteCounts.from_json(c) for n, c in data.get("counted", {}).items()}
        return DemandReport(data["version"], routes, tuple(data.get("used", ())), counted)


def _fields(record: Any) -> dict[str, Any]:
    """A dataclass's fields as they are; a compiled one has no `vars`."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _route_json(route: Route) -> dict[str, Any]:
    """A table goes out each time that a replica comes or goes, so nothing is copied that need not
    be."""
    fields = _fields(route)
    del fields["beyond"]
    return {
        **fields,
        "replicas": tuple(map(_fields, route.replicas)),
        "pods": tuple({"service": s.service, "like": _fields(s.like)} for s in route.pods),
        "versions": tuple(map(_fields, route.versions)),
        "cors": None if route.cors is None else asdict(route.cors),
    }


def _route(data: Mapping[str, Any]) -> Route:
    digests, cors = data["token_digests"], data["cors"]
    return Route(
        **{
            **data,
            "replicas": tuple(ReplicaRoute(**replica) for replica in data["replicas"]),
            "pods": tuple(map(_pod_source, data.get("pods", ()))),
            "versions": tuple(map(_version_share, data.get("versions", ()))),
            "starting": tuple(data.get("starting", ())),
            "tasks": tuple(data["tasks"]),
            "hosts": tuple(data.get("hosts", ())),
            "cors": None if cors is None else Cors.from_json(cors),
            "token_digests": None if digests is None else tuple(digests),
            "weights": tuple((name, weight) for name, weight in data["weights"]),
        }
    )


def _pod_source(data: Mapping[str, Any]) -> PodSource:
    return PodSource(data["service"], ReplicaRoute(**data["like"]))


def _version_share(data: Mapping[str, Any]) -> VersionShare:
    parts = tuple((start, end) for start, end in data["parts"])
    return VersionShare(**{**data, "parts": parts})
