"""The log of a build that has secrets: their values stand in it as `***`.

What the build prints goes through a pipe, for a value may come in pieces. This is for logs, and no
wall: who has a value can always write it down in another way.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from hotplate.serving.replica.inside.building.mask import Mask

_READ_BYTES = 64 << 10


class BuildLog(Protocol):
    """Where a build's steps write; a context manager. `drain` after each step, when nothing of it
    runs any longer."""

    @property
    def written_to(self) -> Path: ...

    def drain(self) -> None: ...

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...


def masked_log(log: Path, texts: Iterable[str]) -> BuildLog:
    """The log in which these texts are masked; itself where there are none."""
    texts = list(filter(None, texts))
    return MaskedLog(log, Mask(texts)) if texts else PlainLog(log)


class PlainLog(BuildLog):
    """Steps write into it themselves."""

    def __init__(self, log: Path) -> None:
        self._log = log

    @property
    def written_to(self) -> Path:
        return self._log

    def drain(self) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class MaskedLog(BuildLog):
    """Steps write into a pipe beside the log, and the platform from there into the log."""

    def __init__(self, log: Path, mask: Mask) -> None:
        self._log = log
        self._mask = mask
        self._pipe = log.with_name(f"{log.name}.pipe")
        self._ends: list[int] = []
        self._failure: OSError | None = None

    @property
    def written_to(self) -> Path:
        return self._pipe

    def __enter__(self) -> None:
        """Raises OSError."""
        self._pipe.unlink(missing_ok=True)
        os.mkfifo(self._pipe, 0o600)
        # With an end of ours to write to, it never seems to have ended.
        for flag in (os.O_RDONLY, os.O_WRONLY):
            self._ends.append(os.open(self._pipe, flag | os.O_NONBLOCK | os.O_CLOEXEC))
        asyncio.get_running_loop().add_reader(self._ends[0], self._read)

    def __exit__(self, *_: object) -> None:
        if self._ends:
            asyncio.get_running_loop().remove_reader(self._ends[0])
        for end in self._ends:
            os.close(end)
        self._ends.clear()
        with suppress(OSError):
            self._pipe.unlink()

    def drain(self) -> None:
        """Have the log have all that was written. Raises OSError where that could not be."""
        while self._read():
            pass
        self._write(self._mask.rest())
        if self._failure is not None:
            raise self._failure

    def _read(self) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(self._ends[0], _READ_BYTES)
        except BlockingIOError:
            return False
        self._write(self._mask.feed(data))
        return bool(data)

    def _write(self, data: bytes) -> None:
        try:
            with self._log.open("ab") as log:
                log.write(data)
        except OSError as error:  # of a full disk: the step's end tells of it
            self._failure = error
