"""Names of objects: good in a host name, different for different workloads, and always the same."""

from __future__ import annotations

import re

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from hotplate.deploy.cluster.names import BASE_LENGTH, bases, key_in
from hotplate.deploy.workload import WorkloadKey
from hotplate.machine.slug import slug


def digest(text: str) -> str:
    return blake3(text.encode()).hexdigest()[:8]


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("hello-1-Hello", 42, "hello-1-hello"),
        ("my_service", 42, f"my-service-{digest('my_service')}"),
        ("-a-", 42, f"a-{digest('-a-')}"),
        ("a--b", 42, f"a-b-{digest('a--b')}"),
        ("a" * 42, 42, "a" * 42),
        ("a" * 43, 42, f"{'a' * 33}-{digest('a' * 43)}"),
        ("a" * 32 + "-" + "b" * 20, 42, f"{'a' * 32}-{digest('a' * 32 + '-' + 'b' * 20)}"),
        ("推論", 63, digest("推論")),
    ],
)
def test_a_slug_keeps_what_it_can(text: str, most: int, expected: str) -> None:
    assert slug(text, most) == expected


@given(st.text(), st.integers(min_value=9, max_value=63))
def test_a_slug_is_good_in_a_host_name(text: str, most: int) -> None:
    made = slug(text, most)
    assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", made)
    assert len(made) <= most


def test_a_workload_is_named_by_its_key_without_the_organization() -> None:
    key = WorkloadKey("default", "hello", 1, "Hello")
    assert bases([key]) == {key: "h-hello-1-hello"}


def test_services_of_a_revision_with_the_same_slug_both_get_a_digest() -> None:
    first, second = (WorkloadKey("default", "d", 1, name) for name in ("Hello", "hello"))
    other = WorkloadKey("default", "d", 2, "Hello")
    made = bases([first, second, other])
    assert made[first] == f"h-d-1-hello-{digest('d-1-Hello')}"
    assert made[second] == f"h-d-1-hello-{digest('d-1-hello')}"
    assert made[other] == "h-d-2-hello"
    assert bases([first]) == {first: "h-d-1-hello"}


def test_the_longest_names_leave_room_for_what_is_added_to_them() -> None:
    keys = [WorkloadKey("o", "d" * 63, 10**6, f"S{'e' * 60}{number}") for number in range(2)]
    made = set(bases(keys).values())
    assert len(made) == 2
    assert {len(name) for name in made} == {BASE_LENGTH + len("h-")}


def test_the_key_is_read_back_from_an_annotation() -> None:
    key = WorkloadKey("acme", "hello", 12, "My/Service@2")
    assert key_in({"hotplate.dev/workload": str(key)}) == key
    assert key_in({"hotplate.dev/workload": "acme/hello"}) is None
    assert key_in({}) is None
