"""What builds have printed, in files: that of each digest's last build, while there is room."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from pathlib import Path

from hotplate.deploy.process.printable import printable

MOST_FILES, MOST_BYTES = 200, 1 << 30
TAIL_LINES = 20
_SUFFIX = ".log"

log = logging.getLogger(__name__)


class KeptLogs:
    """Those in a folder, which belongs to this process alone."""

    def __init__(
        self, folder: Path, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES
    ) -> None:
        self._folder, self._most_files, self._most_bytes = folder, most_files, most_bytes

    def path(self, digest: str) -> Path:
        return self._folder / f"{digest}{_SUFFIX}"

    def begin(self, digest: str) -> KeptLog:
        """An empty one; the oldest ones go."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make_room()
        path = self.path(digest)
        path.unlink(missing_ok=True)  # who reads the earlier one goes on with this
        return KeptLog(path)

    def _make_room(self) -> None:
        files = [(path.stat(), path) for path in self._folder.glob(f"*{_SUFFIX}")]
        kept, size_bytes = 0, 0
        for about, path in sorted(files, key=lambda each: -each[0].st_mtime):
            kept, size_bytes = kept + 1, size_bytes + about.st_size
            if kept >= self._most_files or size_bytes > self._most_bytes:
                path.unlink(missing_ok=True)


class KeptLog:
    """That of one build, from its first line. A disk that is full keeps no more of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.since = ""
        """When the last line of its pod was printed, by its node's clock."""
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def add(self, at: str, line: str) -> None:
        """One more of its pod."""
        self.since = at
        self._write(line)

    def begin_anew(self, why: str) -> None:
        """What follows is another pod's."""
        self.since = ""
        self._write(f"# {why}")

    def tail(self) -> tuple[str, ...]:
        """The last lines."""
        return tuple(self._tail)

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()

    def _write(self, line: str) -> None:
        self._tail.extend(printable(line).splitlines() or [""])
        try:
            self._file.write(f"{line}\n")
        except OSError as error:
            log.warning("the log of a build is not kept at %s: %s", self.path, error)
