"""How a deployment's part of a host name is made."""

from __future__ import annotations

import re

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from hotplate.platform.spec.deployment_host import deployment_host

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
TENANTS = st.one_of(
    st.just("default"), st.from_regex(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True)
)


def digest(text: str) -> str:
    return blake3(text.encode()).hexdigest()[:8]


@pytest.mark.parametrize(
    ("name", "organization", "host"),
    [
        ("hello", "default", "hello"),
        ("h" * 63, "default", "h" * 63),
        ("a--b", "default", f"a-b-{digest('a--b')}"),
        ("hello", "acme", f"hello-acme-{digest('hello--acme')}"),
        ("h" * 63, "acme", f"{'h' * 54}-{digest('h' * 63 + '--acme')}"),
        ("h" * 53 + "-x", "acme", f"{'h' * 53}-{digest('h' * 53 + '-x--acme')}"),
    ],
)
def test_it_is_a_slug_of_the_name_and_of_an_organization_that_is_not_default(
    name: str, organization: str, host: str
) -> None:
    assert deployment_host(name, organization) == host
    assert len(host) <= 63


@given(NAMES, TENANTS)
def test_it_is_one_part_of_a_host_name(name: str, organization: str) -> None:
    host = deployment_host(name, organization)
    assert re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", host)
    assert host == deployment_host(name, organization)
