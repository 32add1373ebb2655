"""How deployments and their services are called on a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotplate.deploy.cluster.names import bases
from hotplate.deploy.workload import WorkloadKey
from hotplate.platform.api.bentocloud.views import deployment_url
from hotplate.platform.cluster.addresses import ServiceNames, cluster_addresses
from tests.support.control_plane.situations import deployment, revision

ECHO = deployment(revision(1), None)


@pytest.mark.parametrize(
    ("url", "end"),
    [
        ("https://*.models.example.com", ".models.example.com"),
        ("http://*.models.test:30080", ".models.test"),
        ("https://*.Models.Example.com", ".models.example.com"),
        ("https://*.x.x", ".x.x"),
        ("https://*.models.example.com.", ".models.example.com"),
    ],
)
@pytest.mark.parametrize("organization", ["default", "acme"])
def test_hosts_are_those_of_the_urls_without_port_and_in_lower_case(
    url: str, end: str, organization: str
) -> None:
    of = replace(ECHO, organization=replace(ECHO.organization, name=organization))
    hosts = cluster_addresses(url, "hotplate").hosts
    assert hosts is not None
    (host,) = hosts(of)
    assert host.endswith(end)
    shown = deployment_url(of, url).partition("://")[2].lower().partition(":")[0].rstrip(".")
    assert shown == host


def test_replicas_are_found_by_the_services_of_their_organizations_namespace() -> None:
    found = cluster_addresses("https://*.models.test", "inhouse").found
    assert found is not None
    first, second = (WorkloadKey("acme", "echo", 1, name) for name in ("Hello", "hello"))
    made = found([first, second])
    assert made[first] == f"inhouse-t-acme/{bases([first, second])[first]}"
    assert made[first] != made[second]
    assert found([first]) == {first: "inhouse-t-acme/h-echo-1-hello"}


def test_services_of_a_bento_call_each_other_by_the_name_that_the_engine_gives() -> None:
    first, second = (WorkloadKey("acme", "echo", 1, name) for name in ("Hello", "hello"))
    named = ServiceNames("inhouse")
    alone = named.of(first, ["Hello"], 0)
    assert alone == "h-echo-1-hello-calls.inhouse-t-acme.svc"
    base = bases([first, second])[first]
    assert named.of(first, ["Hello", "hello"], 0) == f"{base}-calls.inhouse-t-acme.svc"
    assert named.of(first, ["hello"], 0) == named.of(first, ["Hello", "hello"], 0)
    assert not named.need_ports
