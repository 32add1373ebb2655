"""A folder of a measurement's own, for platforms among other things."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """It is removed at the end. Others may enter it: where root measures, builds and replicas are
    other users."""
    with tempfile.TemporaryDirectory(prefix=f"hotplate-{prefix}-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
