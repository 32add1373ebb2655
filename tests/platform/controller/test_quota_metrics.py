"""What Prometheus sees of quotas and of tokens that end."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry

from hotplate.autoscaler.sharing.allocation import NO_QUOTA, Quota
from hotplate.autoscaler.sharing.amounts import Amounts
from hotplate.platform.controller.quota_metrics import QuotaMetrics


def test_what_is_limited_is_told_and_the_first_token_that_ends() -> None:
    registry = CollectorRegistry()
    limit = Amounts(gpus=4, cpus=0, memory_bytes=math.inf, replicas=10)
    quotas = {"a": Quota(limit), "b": NO_QUOTA}
    ends = {"a": (30.0, 40.0, 50.0), "b": (30.0,)}
    used = Amounts(gpus=4, cpus=3, replicas=5)
    registry.register(
        QuotaMetrics(lambda: quotas, lambda organization: used, lambda: ends, lambda: 35.0)
    )
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }
    assert found == {
        ("hotplate_controller_quota_used_ratio", "a", "gpus"): 1.0,
        ("hotplate_controller_quota_used_ratio", "a", "replicas"): 0.5,
        ("hotplate_controller_token_expires_timestamp_seconds", "a"): 40.0,
    }
