"""The part of a BentoML service configuration that Hotplate reads, checked; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotplate.deploy.errors import BadQuantity
from hotplate.deploy.quantities import resources_of
from hotplate.platform.api.fields import Fields
from hotplate.platform.errors import Invalid


def check_service_config(config: Mapping[str, Any], path: str) -> None:
    """Raises Invalid where a replica of the service could not be sized.

    BentoML itself takes any string for an amount, and any value in `config_overrides`.
    """
    fields = Fields(config, path)
    try:
        resources_of(config)
    except BadQuantity as error:
        raise Invalid(f"{fields.at('resources')}: {error}") from error
    if config.get("workers") != "cpu_count":
        fields.number("workers", low=1)
    fields.number("threads", low=1)
    traffic = fields.fields("traffic")
    traffic.number("concurrency", low=1)
    traffic.number("max_concurrency", low=1)
    traffic.amount("timeout")
