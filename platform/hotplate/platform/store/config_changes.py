"""What differs between two configs of a deployment, for the audit; pure.

Of variables and secrets only names are told: a value may be a password.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

NAMES_ONLY = ("envs", "secrets")
"""Lists whose entries are told by their names alone."""
CHANGES = 200
"""Told at most."""


def config_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """New values by path, such as `services.Echo.scaling.max_replicas`; null = it is gone."""
    old, new = dict(_flat(before)), dict(_flat(after))
    paths = sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
    return {path: _told(path, new.get(path)) for path in paths[:CHANGES]}


def _flat(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        below = f"{path}.{key}" if path else str(key)
        if isinstance(inner, Mapping) and inner:
            yield from _flat(inner, below)
        else:
            yield below, inner


def _told(path: str, value: Any) -> Any:
    if path.rpartition(".")[2] not in NAMES_ONLY or not isinstance(value, Sequence):
        return value
    return [each.get("name") if isinstance(each, Mapping) else each for each in value]
