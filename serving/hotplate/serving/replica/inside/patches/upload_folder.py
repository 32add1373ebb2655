"""Where BentoML puts files that callers send; runs in the replica (Python >= 3.9)."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

FOLDER = "tmp"


def store_beside(bento: Path) -> None:
    """Puts uploaded files on the file system of the bento's files, as in a container. An isolated
    replica's `/tmp` is another file system: a service that moves an upload with `Path.rename` would
    get an error that its two folders are on different devices."""
    with suppress(ImportError, AttributeError):  # of another BentoML, which has them elsewhere
        from bentoml._internal.context import request_tempdir_pool

        make = request_tempdir_pool._new
        request_tempdir_pool._new = partial(make, dir=str(bento.with_name(FOLDER)))
