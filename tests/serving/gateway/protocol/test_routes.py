"""Tables and reports on the wire, also from programs that know no versions."""

from __future__ import annotations

import json

from hotplate.machine.access.metrics_reader import MetricsReader
from hotplate.serving.gateway.protocol.routes import (
    DemandReport,
    ReplicaRoute,
    Route,
    RouteDemand,
    RouteTable,
    RouteType,
)
from hotplate.serving.gateway.protocol.version_shares import VersionShare, laid_out

NEXT = VersionShare("next", "acme/echo#next", 12.5)


def test_versions_survive_the_wire() -> None:
    public = Route(
        "acme/echo",
        "127.0.0.1",
        7100,
        replicas=(ReplicaRoute("a", "127.0.0.1:1", version="main@7"),),
        versions=laid_out((NEXT, VersionShare("other", "acme/echo#other", 20))),
        route_type=RouteType.HEADER,
        route_by="X-User",
    )
    readers = (MetricsReader("ab12", 1.5, "acme"), MetricsReader("cd34"))
    table = RouteTable(3, (public, Route(NEXT.route, "", 0)), readers=readers)
    assert RouteTable.from_json(json.loads(json.dumps(table.to_json()))) == table


def test_a_table_that_knows_no_versions_is_read() -> None:
    data = json.loads(json.dumps(RouteTable(3, (Route("acme/echo", "127.0.0.1", 7100),)).to_json()))
    del data["readers"], data["tokens"]
    for key in ("versions", "route_type", "route_by"):
        del data["routes"][0][key]
    (route,) = RouteTable.from_json(data).routes
    assert (route.versions, route.route_type) == ((), RouteType.RANDOM)


def test_answers_survive_the_wire() -> None:
    demand = RouteDemand(answers={"main@7": {"2xx": 5, "broken": 1}})
    report = DemandReport(3, {"acme/echo": demand})
    assert DemandReport.from_json(json.loads(json.dumps(report.to_json(0.0))), 0.0) == report
