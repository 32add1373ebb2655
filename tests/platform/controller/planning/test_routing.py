from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.api.bentocloud.views import deployment_url, origin_of
from hotplate.platform.controller.planning.addresses import Addresses
from hotplate.platform.controller.planning.routing import routes_of
from hotplate.platform.controller.planning.slot_counts import SlotCounts
from hotplate.platform.controller.planning.workloads import Service
from hotplate.platform.store.records import Deployment, DesiredState, Revision, RolloutOutcome
from hotplate.serving.gateway.protocol.cors_rules import Cors
from hotplate.serving.gateway.protocol.routes import (
    TASKS,
    DemandReport,
    Route,
    RouteDemand,
    RouteTable,
)
from tests.support.control_plane.situations import NOW, deployment, key, replica, revision, service


def routes(
    of: Deployment,
    replicas: Iterable[Replica] = (),
    draining: Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
) -> dict[str, Route]:
    kept = {r.number: r for r in (of.latest, of.serving) if r}
    members = {number: [configured(service(number), config or {})] for number in kept}
    addresses = Addresses("0.0.0.0")
    made = routes_of(of, members, list(replicas), frozenset(draining), addresses, SlotCounts())
    return {route.name: route for route in made}


def configured(of: Service, config: Mapping[str, Any]) -> Service:
    return replace(of, workload=replace(of.workload, config=config))


def with_schema(row: Revision, schema: Mapping[str, Any]) -> Revision:
    return replace(row, bento=replace(row.bento, manifest={**row.bento.manifest, "schema": schema}))


def test_only_ready_replicas_of_the_serving_revision_get_requests() -> None:
    of = deployment(revision(2, RolloutOutcome.DEPLOYING), revision(1))
    there = [
        replica("old", 1, address="127.0.0.1:1"),
        replica("starting", 1, ReplicaState.STARTING, address="127.0.0.1:2"),
        replica("new", 2, address="127.0.0.1:3"),
    ]
    route = routes(of, there)["acme/echo"]
    assert [r.id for r in route.replicas] == ["old"]
    assert (route.host, route.port) == ("0.0.0.0", 7100)


@pytest.mark.parametrize(
    ("labels", "twice"),
    [({}, False), ({"hotplate/may-run-twice": "true", "hotplate/of-a-later-version": "x"}, True)]
    + [({"hotplate/may-run-twice": value}, False) for value in ("false", "perhaps")],
)
def test_requests_may_run_twice_where_a_label_says_so(labels: dict[str, str], twice: bool) -> None:
    said = tuple({"key": key, "value": value} for key, value in labels.items())
    of = deployment(revision(1), revision(1), labels=said)
    members = {
        1: [
            service(1, dependencies=("Back",)),
            replace(service(1, "Back"), address="127.0.0.1:7900"),
        ]
    }
    made = routes_of(of, members, [], frozenset(), Addresses("0.0.0.0"), SlotCounts())
    assert [route.may_run_twice for route in made] == [twice, twice]


def test_labels_say_what_callers_may_say_of_themselves_but_for_services_that_call() -> None:
    labels = (
        {"key": "hotplate/organization-header", "value": "X-Organization"},
        {"key": "hotplate/priority-header", "value": "true"},
    )
    of = deployment(revision(1), revision(1), labels=labels)
    members = {
        1: [
            service(1, dependencies=("Back",)),
            replace(service(1, "Back"), address="127.0.0.1:7900"),
        ]
    }
    made = routes_of(of, members, [], frozenset(), Addresses("0.0.0.0"), SlotCounts())
    assert [route.organization_header for route in made] == ["X-Organization", ""]
    assert [route.priority_header for route in made] == [True, False]


def test_a_replica_of_the_old_revision_stays_in_the_route_while_it_drains() -> None:
    of = deployment(revision(2), revision(2))
    there = [replica("old", 1, address="a:1"), replica("new", 2, address="a:2")]
    route = routes(of, there, draining=["old"])["acme/echo"]
    assert {(r.id, r.draining) for r in route.replicas} == {("old", True), ("new", False)}


def test_one_that_is_stopped_drains_and_one_that_never_served_is_in_no_route() -> None:
    of = deployment(revision(1), revision(1))
    ends = replica("ends", 1, ReplicaState.STOPPING, ready_at=NOW, address="a:1")
    never = replica("never", 1, ReplicaState.STOPPING, address="a:2")
    gone = replica("gone", 1, ReplicaState.STOPPING, ready_at=NOW)
    serves = replica("serves", 1, address="a:3")
    route = routes(of, [ends, never, gone, serves])["acme/echo"]
    assert {(r.id, r.draining) for r in route.replicas} == {("ends", True), ("serves", False)}


CHAIN = [
    service(1, dependencies=("Middle",)),
    replace(service(1, "Middle", dependencies=("Last",)), address="127.0.0.1:7901"),
    replace(service(1, "Last"), address="127.0.0.1:7902"),
]


@pytest.mark.parametrize(
    ("answering", "reached"),
    [
        pytest.param("Echo Middle Last", "Echo Middle Last", id="all"),
        pytest.param("Echo Middle", "", id="not the last"),
        pytest.param("Echo Last", "Last", id="not the middle"),
        pytest.param("Middle Last", "Middle Last", id="not the first"),
    ],
)
def test_a_service_is_reached_when_all_that_it_calls_is(answering: str, reached: str) -> None:
    there = [
        replace(
            replica(name, 1, ReplicaState.READY if name in answering else ReplicaState.BACKOFF),
            key=key(1, name),
            address="a:1",
        )
        for name in ("Echo", "Middle", "Last")
    ]
    of = deployment(revision(1), revision(1))
    made = routes_of(of, {1: CHAIN}, there, frozenset(), Addresses("0.0.0.0"), SlotCounts())
    assert [r.id for route in made for r in route.replicas] == reached.split()


def test_a_chains_last_replica_that_drains_answers_nothing_new_and_others_drain_on() -> None:
    named = {name: key(1, name) for name in ("Echo", "Middle", "Last")}
    there = [replace(replica(name, 1), key=at, address="a:1") for name, at in named.items()]
    of = deployment(revision(1), revision(1))
    draining = frozenset({"Echo", "Last"})
    made = routes_of(of, {1: CHAIN}, there, draining, Addresses("0.0.0.0"), SlotCounts())
    assert [[(r.id, r.draining) for r in route.replicas] for route in made] == [
        [("Echo", True)],
        [],
        [("Last", True)],
    ]


def test_before_the_first_revision_stands_requests_are_held() -> None:
    of = deployment(revision(1, RolloutOutcome.DEPLOYING), None)
    route = routes(of, [replica("a", 1, address="a:1")])["acme/echo"]
    assert route.replicas == ()
    assert route.refuse == ""


def test_what_is_terminated_or_has_failed_is_refused_with_the_reason() -> None:
    ended = routes(deployment(revision(1), None, wanted=DesiredState.TERMINATED))["acme/echo"]
    assert "deployment 'echo' is terminated" in ended.refuse
    broken = replace(revision(1, RolloutOutcome.FAILED), reason="no such package")
    failed = routes(deployment(broken, None))["acme/echo"]
    assert "no such package" in failed.refuse


def test_callers_of_what_is_not_ready_are_told_why() -> None:
    reason = (
        "service 'Echo': /root/.hotplate/engine/a b.log, file:///home/ann/x.whl and ~/data/y: no "
        "disk at /srv; GET /readyz of http://h:1/a/b says 503; its log ends with: token=12\n/etc/x"
    )
    waiting = deployment(revision(1), revision(1), status="deploying", reason=reason)
    members = {
        1: [
            service(1, dependencies=("Back",)),
            replace(service(1, "Back"), address="127.0.0.1:7900"),
        ]
    }
    made = routes_of(waiting, members, [], frozenset(), Addresses("0.0.0.0"), SlotCounts())
    assert {route.waits_for for route in made} == {
        "service 'Echo': …/a b.log, …/x.whl and ~…/y: no "
        "disk at /srv; GET /readyz of http://h:1/a/b says 503"
    }
    ready = replica("a", 1, address="a:1")
    assert routes(waiting, [ready])["acme/echo"].waits_for == ""
    assert routes(waiting, [ready], draining=["a"])["acme/echo"].waits_for != ""
    asleep = replace(waiting, status="scaled-to-zero", reason="no requests")
    assert routes(asleep)["acme/echo"].waits_for == ""


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("no /home/ann/secret/key.pem here", "no …/key.pem here"),
        ("exited with code 1; its log ends with: token=12", "exited with code 1"),
        (
            "The step 'get --password 12' of building the environment failed (12 is wrong)",
            "A step of building the environment failed",
        ),
    ],
)
def test_callers_of_what_has_failed_learn_nothing_of_the_host_and_the_code(
    reason: str, told: str
) -> None:
    broken = replace(revision(1, RolloutOutcome.FAILED), reason=reason)
    refused = routes(deployment(broken, None))["acme/echo"].refuse
    assert refused.endswith(f"has failed: {told}")


def test_only_a_closed_deployment_needs_its_organizations_tokens() -> None:
    closed = replace(revision(1), config={"access_authorization": True})
    assert not routes(deployment(revision(1), revision(1)))["acme/echo"].protected
    assert routes(deployment(closed, closed))["acme/echo"].tokens_of == "acme"


def test_the_schema_travels_with_the_route() -> None:
    row = with_schema(revision(1), {"a": 1})
    assert json.loads(routes(deployment(row, row))["acme/echo"].schema) == {"a": 1}


def test_tasks_and_a_path_prefix_travel_with_the_route() -> None:
    schema = {"routes": [{"route": "/v1/toil", "is_task": True}, {"route": "/v1/call"}]}
    row = with_schema(revision(1), schema)
    config = {"endpoints": {"readyz": "/v1/readyz"}}
    route = routes(deployment(row, row), config=config)["acme/echo"]
    assert (route.tasks, route.ready_path) == (("/v1/toil",), "/v1/readyz")


def test_kept_tasks_wait_in_a_route_of_their_own_that_has_no_callers() -> None:
    row = with_schema(revision(1), {"routes": [{"route": "/toil", "is_task": True}]})
    of = deployment(row, row)
    for has_tasks in (True, False):
        toiling = replace(configured(service(1), {}), has_tasks=has_tasks)
        there = [replica("a", 1, address="127.0.0.1:1")]
        made = routes_of(of, {1: [toiling]}, there, frozenset(), Addresses("0.0.0.0"), SlotCounts())
        public, *apart = made
        assert (public.name, public.tasks_apart, public.internal) == ("acme/echo", has_tasks, False)
        assert public.tasks == ("/toil",)
        assert [route.name for route in apart] == ["acme/echo" + TASKS] * has_tasks
        for route in apart:
            assert (route.host, route.port, route.schema, route.tasks) == ("", 0, "", ())
            assert not route.tasks_apart
            (slot,) = route.replicas
            assert (slot.id, slot.concurrency, slot.learns, slot.least) == ("a", 1, False, 1)


CORS = {
    "enabled": True,
    "access_control_allow_origins": "http://page.test",
    "access_control_allow_methods": ["POST"],
    "access_control_allow_headers": None,
    "access_control_max_age": None,
}


def test_the_rules_for_pages_are_the_services_and_let_them_send_the_platforms_token() -> None:
    row = revision(1)
    of = deployment(row, row)
    cors = routes(of, config={"http": {"cors": CORS}})["acme/echo"].cors
    assert cors == Cors(allow_origins=("http://page.test",), allow_methods=("POST",))
    row = replace(row, config={"access_authorization": True})
    cors = routes(deployment(row, row), config={"http": {"cors": CORS}})["acme/echo"].cors
    assert cors is not None
    assert cors.allow_headers == ("Authorization",)


@pytest.mark.parametrize("rules", [{"enabled": False}, {"access_control_allow_origin_regex": ".*"}])
def test_pages_without_rules_and_regular_expressions_are_left_to_the_replicas(
    rules: Mapping[str, Any],
) -> None:
    row = revision(1)
    config = {"http": {"cors": {**CORS, **rules}}}
    assert routes(deployment(row, row), config=config)["acme/echo"].cors is None


def test_a_service_that_others_call_listens_on_loopback_only() -> None:
    of = deployment(revision(1), revision(1))
    tokenizer = replace(service(1, "Tokenizer"), address="127.0.0.1:7999")
    members = {1: [service(1, dependencies=("Tokenizer",)), tokenizer]}
    addresses = Addresses("0.0.0.0", tls_certificate="/a.pem", tls_key="/a.key")
    made = routes_of(of, members, [], frozenset(), addresses, SlotCounts())
    inner = next(route for route in made if route.internal)
    public = next(route for route in made if not route.internal)
    assert (public.tls_certificate, public.tls_key) == ("/a.pem", "/a.key")
    assert not inner.tls_certificate, "who calls it has no reason to know the certificate"
    assert (inner.name, inner.host, inner.port) == ("acme/echo@1/Tokenizer", "127.0.0.1", 7999)


def test_a_service_that_has_a_name_for_the_others_is_reached_at_what_all_share() -> None:
    of = deployment(revision(1), revision(1))
    tokenizer = replace(service(1, "Tokenizer"), address="calls.acme.svc")
    members = {1: [service(1, dependencies=("Tokenizer",)), tokenizer]}
    made = routes_of(of, members, [], frozenset(), Addresses("0.0.0.0"), SlotCounts())
    (inner,) = [route for route in made if route.internal]
    assert (inner.host, inner.port, inner.hosts) == ("", 0, ("calls.acme.svc",))


def test_what_an_old_revision_calls_is_reached_until_the_revision_is_gone() -> None:
    of = deployment(revision(2), revision(2))
    members = {
        number: [
            service(number),
            replace(service(number, "Tokenizer"), address=f"127.0.0.1:{7990 + number}"),
        ]
        for number in (1, 2)
    }
    there = [
        replace(replica("old", 1, address="a:1"), key=key(1, "Tokenizer")),
        replace(replica("new", 2, address="a:2"), key=key(2, "Tokenizer")),
    ]
    made = routes_of(of, members, there, frozenset(), Addresses("0.0.0.0"), SlotCounts())
    reached = {route.port: [r.id for r in route.replicas] for route in made if route.internal}
    assert reached == {7991: ["old"], 7992: ["new"]}


def test_tables_and_reports_survive_the_wire() -> None:
    of = deployment(revision(1), revision(1))
    table = RouteTable(3, tuple(routes(of, [replica("a", address="a:1")]).values()))
    assert RouteTable.from_json(json.loads(json.dumps(table.to_json()))) == table
    report = DemandReport(
        3,
        {
            "acme/echo": RouteDemand(
                1, 2, 3, 4, 0.5, {"a": 1}, {"a": 7}, {"a": 1}, {"b": "why"}, {"no_capacity": 4}
            )
        },
    )
    assert DemandReport.from_json(json.loads(json.dumps(report.to_json(0.0))), 0.0) == report


@pytest.mark.parametrize(
    ("scheme", "host", "url"),
    [("https", "a.test", "https://a.test:7100"), ("http", "::1", "http://[::1]:7100")],
)
def test_a_deployments_url_says_how_it_is_served(scheme: str, host: str, url: str) -> None:
    of = replace(deployment(revision(1), None), port=7100)
    assert deployment_url(of, origin_of(scheme, host)) == url


def test_where_an_address_is_shared_routes_have_hosts_and_say_where_replicas_are_found() -> None:
    of = deployment(revision(1), revision(1))
    addresses = Addresses(
        "",
        hosts=lambda each: [f"{each.name}.models.test"],
        found=lambda keys: {each: f"ns/{each.service.lower()}" for each in keys},
    )
    called = replace(service(1, "Back"), address="back.svc")
    members = {1: [service(1, dependencies=("Back",)), called]}

    def made(*there: Replica) -> dict[str, Route]:
        given = routes_of(of, members, list(there), frozenset(), addresses, SlotCounts())
        return {route.name: route for route in given}

    asleep = made()
    public, inner = asleep["acme/echo"], asleep["acme/echo@1/Back"]
    assert (public.port, public.hosts) == (0, ("echo.models.test",))
    assert [source.service for source in inner.pods] == ["ns/back"]
    assert public.pods == (), "nobody calls a service whose own callees are not there"
    there = made(replace(replica("b", 1, address="10.0.0.1:3000"), key=called.workload.key))
    (source,) = there["acme/echo"].pods
    assert (source.service, source.like.version, source.like.worker) == ("ns/echo", "main@1", True)
