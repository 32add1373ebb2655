"""Where BentoML puts files that callers send; runs in the replica (Python >= 3.9)."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

FOLDER = "tmp"


def keep_beside(bento: Path) -> None:
    """Put them on the file system that the bento's files are on, as in a container.

    `/tmp` is another one within walls: a service that keeps what it was sent by `Path.rename`
    would be told that its two folders are on different devices.
    """
    with suppress(ImportError, AttributeError):  # of another BentoML, which has them elsewhere
        from bentoml._internal.context import request_tempdir_pool

        make = request_tempdir_pool._new
        request_tempdir_pool._new = partial(make, dir=str(bento.with_name(FOLDER)))
