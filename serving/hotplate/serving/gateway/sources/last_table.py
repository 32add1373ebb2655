"""The last route table on disk, so that a gateway can start while the control plane is down."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from hotplate.serving.gateway.protocol.routes import RouteTable

log = logging.getLogger(__name__)


class TableFile:
    """`routes.json` in the gateway's state folder. Only its user may read it, as it holds digests
    of tokens."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "routes.json"

    def load(self) -> RouteTable | None:
        """The last table, or None when there is none that can be read."""
        try:
            return RouteTable.from_json(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("%s is not a route table (%s); starting without routes", self._path, error)
            return None

    def save(self, table: RouteTable) -> None:
        """Replaces the file in one step. A failure is only logged, since serving matters more."""
        new = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(json.dumps(table.to_json()))  # `dump` encodes in Python
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            log.warning("the route table cannot be kept in %s: %s", self._path, error)
