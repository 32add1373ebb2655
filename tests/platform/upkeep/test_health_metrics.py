"""What Prometheus sees of whether the platform's parts do their work."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry

from hotplate.platform.upkeep.health_metrics import HealthMetrics
from tests.support.certificates import issue

DISK = {"path": "/data", "free_bytes": 5, "total_bytes": 100}
EXPIRES = "hotplate_control_plane_certificate_expires_timestamp_seconds"


def test_checks_and_disks_are_told() -> None:
    registry = CollectorRegistry()
    registry.register(
        HealthMetrics(lambda: {"database": True, "gateway": False}, lambda: [DISK], "")
    )
    value = registry.get_sample_value
    failing = "hotplate_control_plane_check_failing"
    assert value(failing, {"check": "database"}) == 1
    assert value(failing, {"check": "gateway"}) == 0
    assert value("hotplate_control_plane_disk_free_bytes", {"path": "/data"}) == 5
    assert value("hotplate_control_plane_disk_size_bytes", {"path": "/data"}) == 100
    assert value(EXPIRES) is None


def test_when_the_certificate_ends_is_told(tmp_path: Path) -> None:
    file, _ = issue(tmp_path, "gateway")
    registry = CollectorRegistry()
    registry.register(HealthMetrics(dict, list, str(file)))
    (found,) = x509.load_pem_x509_certificates(file.read_bytes())
    assert registry.get_sample_value(EXPIRES) == found.not_valid_after_utc.timestamp()


@pytest.mark.parametrize("text", ["", "no certificate"])
def test_one_that_cannot_be_read_fails_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tls.pem"
    if text:
        file.write_text(text)
    registry = CollectorRegistry()
    registry.register(HealthMetrics(dict, list, str(file)))
    assert registry.get_sample_value(EXPIRES) is None
