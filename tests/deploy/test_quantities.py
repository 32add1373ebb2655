"""Amounts as people write them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.deploy.errors import BadQuantity
from hotplate.deploy.quantities import cpus, gpus, memory_bytes, resources_of
from hotplate.deploy.workload import Resources


@pytest.mark.parametrize(
    ("written", "cores"),
    [(2, 2.0), ("2", 2.0), (0.5, 0.5), ("0.5", 0.5), ("500m", 0.5), ("4000m", 4.0), (0, 0.0)],
)
def test_cpus_are_read(written: object, cores: float) -> None:
    assert cpus(written) == cores


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [
        (1, 1 << 30),
        (1.5, 3 << 29),
        ("2", 2 << 30),
        ("512Mi", 512 << 20),
        ("512MiB", 512 << 20),
        ("48Gi", 48 << 30),
        ("1G", 10**9),
        ("1GB", 10**9),
        ("1e3Mi", 1000 << 20),
        ("64k", 64_000),
        ("128 Ki", 128 << 10),
        ("1Ti", 1 << 40),
        ("100B", 100),
    ],
)
def test_memory_is_read(written: object, size_bytes: int) -> None:
    assert memory_bytes(written) == size_bytes


@pytest.mark.parametrize(("written", "count"), [(1, 1.0), ("2", 2.0), (0.5, 0.5), (0, 0.0)])
def test_gpus_are_read(written: object, count: float) -> None:
    assert gpus(written) == count


@pytest.mark.parametrize(
    ("read", "written"),
    [
        *((cpus, bad) for bad in ("", "two", "-1", -1, "1 core", True, None, [2], "1_0", "1e999m")),
        *((memory_bytes, bad) for bad in ("12 apples", "5m", "-1Gi", 1 << 31, "9999Pi", True)),
        *((gpus, bad) for bad in (1.5, "2.5", "1Gi", -1, float("nan"), float("inf"))),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_text_and_the_form(read: Any, written: Any) -> None:
    with pytest.raises(BadQuantity, match="write ") as refusal:
        read(written)
    assert repr(written) in str(refusal.value)


@given(st.one_of(st.text(), st.floats(), st.integers(), st.booleans(), st.none()))
def test_any_input_is_an_amount_or_refused(written: object) -> None:
    for read in (cpus, memory_bytes, gpus):
        with suppress(BadQuantity):
            assert read(written) >= 0


def test_resources_of_a_service() -> None:
    config = {"resources": {"cpu": "500m", "memory": "512Mi", "gpu": 0.5, "gpu_type": "nvidia-l4"}}
    assert resources_of(config) == Resources(0.5, 512 << 20, 0.5)
    assert resources_of({}) == Resources()
    assert resources_of({"resources": {"cpu": None, "memory": ""}}) == Resources()
    with pytest.raises(BadQuantity, match="resources"):
        resources_of({"resources": "much"})
