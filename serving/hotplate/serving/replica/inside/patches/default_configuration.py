"""BentoML's default configuration, read and checked once in a process; runs in the replica (Python
>= 3.9).

BentoML does it each time that a configuration is applied, twice in a replica: that is a third of
what a replica's start takes once everything is imported. What is applied is checked as before, but
for the parts of it that have been found valid before: most of them are the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from importlib import import_module
from typing import Any

CHECKED_VERSION = 2
"""That which services apply, and whose parts are checked one by one."""


def keep_defaults() -> None:
    """Has BentoML take a copy of what it has read before, and check each part once."""
    from bentoml._internal.configuration import containers

    spec: Any = import_module(f"bentoml._internal.configuration.v{CHECKED_VERSION}")
    if _has_independent_parts(getattr(spec.SCHEMA, "schema", None)):
        spec.SCHEMA = CheckedOnce(spec.SCHEMA)

    read = lru_cache(maxsize=None)(containers.get_default_config)

    def get_default_config(version: int) -> Any:
        return deepcopy(read(version))

    vars(containers)["get_default_config"] = get_default_config


class CheckedOnce:
    """A schema that leaves out the parts of a configuration that have been valid before."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._valid: set[tuple[str, str]] = set()
        parts = _own_parts(schema.schema["services"])
        self._names = {name.schema for name in parts if isinstance(name.schema, str)}

    def validate(self, config: Any) -> Any:
        """As the schema does it: raises SchemaError. What it returns is as it was given."""
        try:
            services = config["services"]
            checked = {
                name: part if name in self._names else self._unknown(part)
                for name, part in self._unknown(services).items()
            }
            self._schema.validate({**config, "services": checked})
        except Exception:  # it is the schema's to say what is wrong
            return self._schema.validate(config)
        for name, part in services.items():
            self._note(part if name not in self._names else {name: part})
        return config

    def _unknown(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in parts.items() if (name, repr(part)) not in self._valid}

    def _note(self, parts: Mapping[str, Any]) -> None:
        self._valid.update((name, repr(part)) for name, part in parts.items())


def _has_independent_parts(schema: Any) -> bool:
    """Whether what is said of all services, and of one, is any of the same parts."""
    try:
        services = schema["services"]
        own = _own_parts(services)
        return all(
            type(name).__name__ == "Optional" and services[name] is part
            for name, part in own.items()
        )
    except (KeyError, TypeError, StopIteration, AttributeError):  # another BentoML
        return False


def _own_parts(services: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """What may be said of one service. Raises StopIteration where nothing may."""
    parts: Mapping[Any, Any] = next(
        part for name, part in services.items() if getattr(name, "schema", None) is str
    )
    return parts
