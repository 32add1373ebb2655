"""A BentoML service configuration, checked: as written, and as it is overridden; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotplate.deploy.errors import BadQuantity
from hotplate.deploy.quantities import resources_of
from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import Fields, suggestion
from hotplate.platform.spec.service_settings import SERVICE_SETTINGS, Settings


def check_service_config(config: Mapping[str, Any], path: str) -> None:
    """Raises Invalid where a replica of the service could not be sized.

    BentoML itself takes any string for an amount.
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


def check_overrides(
    overrides: Mapping[str, Any],
    path: str,
    written: Mapping[str, Any],
    known: Settings = SERVICE_SETTINGS,
) -> None:
    """Raises Invalid where BentoML would drop a setting, or its worker would not start with it.

    `written` is the author's configuration: what it has was known to the BentoML that checked it.
    """
    fields = Fields(overrides, path)
    for key in overrides:
        kind = known.get(key)
        if callable(kind):
            kind(fields, key)
        elif kind is not None:
            below = written.get(key)
            inside = below if isinstance(below, Mapping) else {}
            check_overrides(fields.mapping(key), fields.at(key), inside, kind)
        elif key not in written:
            raise Invalid(f"{fields.at(key)}: BentoML has no such setting{_nearest(key, known)}")


def _nearest(key: str, known: Settings) -> str:
    """Where it is one level too high, the section that has it; else what is written alike."""
    for section, kind in known.items():
        if not callable(kind) and key in kind:
            return f"; did you mean '{section}.{key}'?"
    return suggestion(key, known)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings laid over each other; lists and values are replaced."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            value = merged(under, value)
        result[key] = value
    return result
