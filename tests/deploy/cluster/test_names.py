"""Names of objects: good in a host name, different for different workloads, and always the same."""

from __future__ import annotations

from blake3 import blake3

from hotplate.deploy.cluster.names import (
    BASE_LENGTH,
    DEPLOYMENT,
    bases,
    deployment_labels,
    key_in,
    workload_labels,
)
from hotplate.deploy.cluster.objects import anchor
from hotplate.deploy.workload import WorkloadKey


def digest(text: str) -> str:
    return blake3(text.encode()).hexdigest()[:8]


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


def test_a_deployment_keeps_its_name_and_a_version_of_a_canary_has_one_that_is_good() -> None:
    for name in ("hello", "a--b", "d" * 63):
        key = WorkloadKey("acme", name, 1, "Hello")
        assert (
            workload_labels(key)[DEPLOYMENT] == deployment_labels("acme", name)[DEPLOYMENT] == name
        )
    version = f"hello-next-{digest('hello#next')}"
    key = WorkloadKey("acme", "hello#next", 1, "Hello")
    assert workload_labels(key)[DEPLOYMENT] == version
    anchored = anchor("acme", "hello#next", "hotplate-t-acme")["metadata"]
    assert anchored["name"] == anchored["labels"][DEPLOYMENT] == version
    assert key_in({"hotplate.dev/workload": str(key)}) == key


def test_the_key_is_read_back_from_an_annotation() -> None:
    key = WorkloadKey("acme", "hello", 12, "My/Service@2")
    assert key_in({"hotplate.dev/workload": str(key)}) == key
    assert key_in({"hotplate.dev/workload": "acme/hello"}) is None
    assert key_in({}) is None
