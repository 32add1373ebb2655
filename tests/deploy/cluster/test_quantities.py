"""Amounts are written as a cluster gives them back, or a second look would write them again."""

from __future__ import annotations

import pytest

from hotplate.deploy.cluster.quantities import binary, cpus, size_bytes, thousandths


@pytest.mark.parametrize(
    ("amount", "written"),
    [(1, "1"), (2.0, "2"), (0.5, "500m"), (1.5, "1500m"), (0.0001, "1m")],
)
def test_cpus(amount: float, written: str) -> None:
    assert thousandths(amount) == written
    assert cpus(written) == pytest.approx(amount, abs=0.001)


@pytest.mark.parametrize(
    ("amount", "written"),
    [
        (512 << 20, "512Mi"),
        (1 << 30, "1Gi"),
        (1536 << 20, "1536Mi"),
        (16_000_000_000, "15625000Ki"),
        (1_000_001, "1000001"),
        (15_000, "15k"),
    ],
)
def test_bytes(amount: int, written: str) -> None:
    assert binary(amount) == written
    assert size_bytes(written) == amount


@pytest.mark.parametrize("amount", [None, "", "many", "-1"])
def test_what_cannot_be_read_is_nothing(amount: object) -> None:
    assert size_bytes(amount) == 0
    assert cpus(amount) == 0
