"""No two deployments have one host name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hotplate.platform.spec.deployment_host import deployment_host, rivals

NAMES = st.text("ab-", min_size=1, max_size=12).filter(lambda name: name.strip("-") == name)
TENANTS = st.one_of(st.just("default"), NAMES)


def test_a_name_of_the_default_organization_is_the_host_and_others_have_a_digest() -> None:
    assert deployment_host("hello", "default") == "hello"
    assert deployment_host("hello", "acme").startswith("hello-acme-")
    assert len(deployment_host("h" * 63, "o" * 40)) <= 63


@given(NAMES, TENANTS, NAMES, TENANTS)
def test_whoever_would_have_the_same_host_is_known(
    name: str, tenant: str, other: str, another: str
) -> None:
    if (name, tenant) != (other, another):
        same = deployment_host(name, tenant) == deployment_host(other, another)
        assert same == ((other, another) in set(rivals(name, tenant)))
