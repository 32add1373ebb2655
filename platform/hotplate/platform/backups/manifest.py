"""What a backup says of itself, as its first member."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hotplate.platform.errors import BackupFailed

FORMAT = 1
NAME = "hotplate-backup.json"
KEYS_NAME = "secret-keys.sealed"

LEFT_OUT = ("keys", "uploads")
"""Tables whose rows are not taken along: the keys that sign links are each installation's own, and
uploads that are under way begin anew."""


@dataclass(frozen=True)
class BackedTable:
    """One table."""

    rows: int
    digest: str
    """BLAKE3 of its lines."""


@dataclass(frozen=True)
class BackupManifest:
    """What is in it."""

    revision: str
    """The schema's."""
    created_at: str
    """In ISO 8601."""
    tables: Mapping[str, BackedTable]
    """In the order in which they are restored."""
    last_ids: Mapping[str, int] = field(default_factory=dict)
    blobs: int | None = None
    """How many there are; None = they were left out."""
    blob_bytes: int = 0
    secret_keys: bool = False

    def to_bytes(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode() + b"\n"

    def as_json(self) -> dict[str, Any]:
        """For people: what `--json` prints of it."""
        shown = asdict(self)
        del shown["last_ids"]
        return shown | {"rows": sum(table.rows for table in self.tables.values())}


def read(content: bytes) -> BackupManifest:
    """Raises BackupFailed for a format that is not known."""
    found = json.loads(content)
    if found.pop("format") != FORMAT:
        raise BackupFailed(
            "the backup is of a later format than this hotplate knows; restore it with the one "
            "that made it"
        )
    tables = {name: BackedTable(**table) for name, table in found.pop("tables").items()}
    return BackupManifest(tables=tables, **found)
