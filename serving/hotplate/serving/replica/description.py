"""`bento.yaml` and `model.yaml`: YAML of any author, read within limits."""

from __future__ import annotations

from typing import Any

import yaml

DEPTH_MAX = 100
"""Schemas nest a dozen levels. libyaml's loader is recursive: 200,000 brackets crash the
process."""
NODES_MAX = 200_000
"""About 100 MB in memory; a bento with a thousand files in its schema has 20,000."""


def read_description(data: bytes) -> dict[str, Any]:
    """The mapping. Raises ValueError with the reason."""
    try:
        _check_bounds(data)
        described = yaml.load(data, _loader())  # a safe loader
    except (yaml.YAMLError, RecursionError) as exc:
        raise ValueError(f"it is not YAML ({' '.join(str(exc).split())})") from exc
    if not isinstance(described, dict):
        raise ValueError("it is not a mapping")
    return described


def _check_bounds(data: bytes) -> None:
    """Checks the text piece by piece, before any object is made of it. Raises ValueError."""
    depth = 0
    for nodes, event in enumerate(yaml.parse(data, _loader())):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise ValueError(f"it nests more than {DEPTH_MAX} deep")
        if nodes > NODES_MAX:
            raise ValueError(f"it has more than {NODES_MAX} values")


def _loader() -> Any:
    """The safe loader, in C where there is one."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
