"""Where things lie in a blob store, below its URL."""

from __future__ import annotations

import re

DIGEST = re.compile(r"[0-9a-f]{64}")
NOTE = re.compile(r"(environments|compiled)/[0-9a-f]{32,64}")
CLAIM = "hotplate.json"


def blob_path(digest: str) -> str:
    return f"blobs/{digest[:2]}/{digest}"


def manifest_path(digest: str) -> str:
    return f"manifests/{digest}.json"


def note_path(name: str) -> str:
    """Raises ValueError for what is no name of a note."""
    if not NOTE.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a note")
    return f"{name}.json"
