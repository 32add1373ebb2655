"""Which version a request goes to: by name, evenly, or by a value that keeps its version."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from hotplate.serving.gateway.admission.version_choice import (
    VersionChoice,
    point_of,
    refuse_unknown_version,
)
from hotplate.serving.gateway.errors import UnknownVersion
from hotplate.serving.gateway.http1.request_head import RequestHead, read_request
from hotplate.serving.gateway.protocol.routes import Route, RouteType
from hotplate.serving.gateway.protocol.version_shares import MAIN, VersionShare, laid_out

CALLS = 10_000
VALUES = [f"user-{number}" for number in range(CALLS)]


def route_of(weights: Mapping[str, float], **changes: Any) -> Route:
    shares = laid_out([VersionShare(v, f"acme/echo#{v}", w) for v, w in weights.items()])
    return Route("acme/echo", "127.0.0.1", 7100, versions=shares, **changes)


def request_of(target: str = "/x", **headers: str) -> RequestHead:
    fields = [(b"Host", b"a.test")]
    fields += [(n.replace("_", "-").encode(), v.encode("latin-1")) for n, v in headers.items()]
    return read_request(b"GET", target.encode(), fields, http10=False, peer=b"p", proto=b"http")


def by_header(weights: Mapping[str, float]) -> list[str]:
    """The version of each value."""
    choice = VersionChoice(route_of(weights, route_type=RouteType.HEADER, route_by="X-User"))
    return [choice.of(request_of(x_user=value)) for value in VALUES]


@pytest.mark.parametrize("calls", [20, 100, CALLS])
@pytest.mark.parametrize("stride", [1, 2, 7])
def test_each_version_gets_its_share_of_any_number_of_requests(calls: int, stride: int) -> None:
    """Also of each second, or seventh, which may be of another kind. The bound is that of the
    golden ratio's sequence: its discrepancy grows with the logarithm of the calls."""
    weights = {"next": 10, "other": 25}
    choice, request = VersionChoice(route_of(weights)), request_of()
    found = Counter([choice.of(request) for _ in range(calls * stride)][::stride])
    for version, weight in weights.items():
        assert abs(found[version] - calls * weight / 100) <= 3 + stride * math.log(calls)


def test_ten_percent_of_ten_thousand_calls_are_ten_percent() -> None:
    choice, request = VersionChoice(route_of({"next": 10})), request_of()
    assert 990 <= Counter(choice.of(request) for _ in range(CALLS))["next"] <= 1010


def test_values_are_spread_by_weight_and_keep_their_version_in_every_gateway() -> None:
    weights = {"next": 10, "other": 30}
    once = by_header(weights)
    assert once == by_header(weights)
    assert abs(once.count("next") - 1000) < 100  # three times what chance explains
    assert abs(once.count("other") - 3000) < 150


def test_the_point_of_a_value_never_changes() -> None:
    """It is in use in every installation: callers would change their version with it."""
    assert point_of(b"user-1") == pytest.approx(60.4192407, abs=1e-7)
    assert all(0 <= point_of(value.encode()) < 100 for value in VALUES)


def test_a_weight_that_grows_takes_from_main_alone() -> None:
    """Two versions, whichever grows, by how much, and however much the other one has."""
    table = {
        (a, b): by_header({"next": a, "other": b})
        for a, b in ((10, 0), (20, 0), (10, 30), (20, 30), (20, 55), (45, 55), (100, 0))
    }
    for (a, b), before in table.items():
        for (grown_a, grown_b), after in table.items():
            if grown_a >= a and grown_b >= b and grown_a + grown_b <= 100:
                moved = [(x, y) for x, y in zip(before, after, strict=True) if x != y]
                assert {x for x, _ in moved} <= {MAIN}


def test_a_query_is_read_as_a_replica_reads_it() -> None:
    route = route_of({"next": 50}, route_type=RouteType.QUERY, route_by="user")
    choice = VersionChoice(route)
    for value in VALUES[:200]:
        expected = "next" if point_of(value.encode()) < 50 else MAIN
        assert choice.of(request_of(f"/x?a=1&user={value}&user=other")) == expected
        escaped = value.replace("-", "%2D")
        assert choice.of(request_of(f"/y?user={escaped}")) == expected


@pytest.mark.parametrize(
    ("target", "read"),
    [
        ("/x?user%20id=%C3%A9", "é"),
        ("/x?user+id=%C3%A9", "é"),
        ("/x?user%20id=a+b", "a b"),
        ("/x?user%20id=a%2Bb%26c%3Dd", "a+b&c=d"),
        ("/x?user%20id=%ff", "\ufffd"),
        ("/x?user%20id=" + "%41" * 2700, "A" * 2700),
    ],
)
def test_what_is_escaped_in_a_query_is_one_value(target: str, read: str) -> None:
    half = point_of(read.encode())
    for weight, version in ((half + 1e-9, "next"), (half, MAIN)):
        route = route_of({"next": weight}, route_type=RouteType.QUERY, route_by="user id")
        assert VersionChoice(route).of(request_of(target)) == version


@pytest.mark.parametrize("written", ["X-User", "x-user", "X-USER"])
def test_a_field_has_its_value_whatever_its_case_and_however_long(written: str) -> None:
    for value in ("a", "A", "x" * 8192, "\xe9 b"):
        half = point_of(value.encode("latin-1"))
        for weight, version in ((half + 1e-9, "next"), (half, MAIN), (100, "next"), (0, MAIN)):
            route = route_of({"next": weight}, route_type=RouteType.HEADER, route_by=written)
            for sent in ("x_user", "X_USER", "X_uSer"):
                assert VersionChoice(route).of(request_of(**{sent: value})) == version


@pytest.mark.parametrize("kind", [RouteType.HEADER, RouteType.QUERY])
def test_without_a_value_it_is_main(kind: str) -> None:
    choice = VersionChoice(route_of({"next": 100}, route_type=kind, route_by="user"))
    for request in (
        request_of(),
        request_of("/x?user=&other=1"),
        request_of("/x?User=1"),
        request_of(user=""),
    ):
        assert choice.of(request) == MAIN


def test_a_request_may_name_its_version_however_the_others_are_chosen() -> None:
    for kind in (RouteType.RANDOM, RouteType.HEADER, RouteType.QUERY):
        choice = VersionChoice(route_of({"next": 0}, route_type=kind, route_by="user"))
        assert choice.of(request_of(hotplate_version="next")) == "next"
        everything = VersionChoice(route_of({"next": 100}, route_type=kind, route_by="user"))
        assert everything.of(request_of("/x?user=1", user="1", Hotplate_Version="main")) == MAIN


@pytest.mark.parametrize("named", ["nxt", "NEXT", "next@1", "next, main"])
def test_an_unknown_version_is_refused_with_those_that_there_are(named: str) -> None:
    route = route_of({"next": 10})
    request = request_of(hotplate_version=named)
    assert VersionChoice(route).of(request) == MAIN, "where it is refused"
    with pytest.raises(UnknownVersion, match="one of main, next"):
        refuse_unknown_version(route, request)


def test_a_choice_lasts_as_long_as_what_it_is_made_of() -> None:
    route = route_of({"next": 10})
    choice = VersionChoice(route)
    assert choice.is_of(route_of({"next": 10}, queue_limit=7))
    assert not choice.is_of(route_of({"next": 11}))
    assert not choice.is_of(route_of({"next": 10}, route_type=RouteType.HEADER, route_by="a"))
