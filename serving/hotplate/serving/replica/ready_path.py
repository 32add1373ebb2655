"""The path at which a replica says whether it is ready; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def ready_path(config: Mapping[str, Any]) -> str:
    """The path in a service's configuration, where BentoML writes it if there is a `path_prefix`.
    Another path there is the author's, for the program behind a custom command."""
    path = str((config.get("endpoints") or {}).get("readyz") or "")
    return path if path.endswith("/readyz") else "/readyz"
