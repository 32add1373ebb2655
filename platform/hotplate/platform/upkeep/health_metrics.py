"""What Prometheus sees of whether the platform's parts do their work, read when it asks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

log = logging.getLogger("hotplate.health")


class HealthMetrics(Collector):
    def __init__(
        self,
        failing: Callable[[], Mapping[str, bool]],
        disks: Callable[[], Sequence[Mapping[str, Any]]],
        certificate: str,
    ) -> None:
        """`failing` says of each check whether it does; `certificate` is the PEM file that gateways
        show to callers, empty = none."""
        self._failing = failing
        self._disks = disks
        self._certificate = Path(certificate) if certificate else None

    def describe(self) -> Iterable[Metric]:
        """None by name: a registry would ask for them at once."""
        return ()

    def collect(self) -> Iterable[Metric]:
        failing = GaugeMetricFamily(
            "hotplate_control_plane_check_failing",
            "1 where a part of the platform does not do its work",
            labels=["check"],
        )
        for name, fails in self._failing().items():
            failing.add_metric([name], float(fails))
        yield failing
        yield from self._of_disks()
        if self._certificate is not None:
            yield from _expiry(self._certificate)

    def _of_disks(self) -> Iterable[Metric]:
        free = GaugeMetricFamily(
            "hotplate_control_plane_disk_free_bytes",
            "Free on the platform's disks",
            labels=["path"],
        )
        size = GaugeMetricFamily(
            "hotplate_control_plane_disk_size_bytes",
            "Size of the platform's disks",
            labels=["path"],
        )
        for disk in self._disks():
            free.add_metric([disk["path"]], disk["free_bytes"])
            size.add_metric([disk["path"]], disk["total_bytes"])
        yield from (free, size)


def _expiry(certificate: Path) -> Iterable[Metric]:
    try:
        chain = x509.load_pem_x509_certificates(certificate.read_bytes())
    except (OSError, ValueError) as error:
        log.warning("when %s expires is not known: %s", certificate, error)
        return
    yield GaugeMetricFamily(
        "hotplate_control_plane_certificate_expires_timestamp_seconds",
        "When the first certificate of the chain ends that callers are shown, in Unix seconds",
        value=min(each.not_valid_after_utc.timestamp() for each in chain),
    )
