"""What Prometheus sees of the database."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Histogram

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


def transaction_times(registry: CollectorRegistry) -> Callable[[float], None]:
    """Gets how long each transaction took."""
    return Histogram(
        "hotplate_store_transaction_seconds",
        "Transactions of the database, from their begin until they were committed or undone",
        buckets=_SECONDS,
        registry=registry,
    ).observe
