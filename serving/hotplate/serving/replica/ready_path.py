"""Where a replica says whether it is ready; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def ready_path(config: Mapping[str, Any]) -> str:
    """From a service's configuration, into which BentoML writes it where there is a `path_prefix`.

    Another path there is the author's, of the program behind a custom command.
    """
    path = str((config.get("endpoints") or {}).get("readyz") or "")
    return path if path.endswith("/readyz") else "/readyz"
