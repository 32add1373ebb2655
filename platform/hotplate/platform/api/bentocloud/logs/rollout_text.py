"""What the builder's log says of one roll-out: why it waits, what its builds print, how it ends."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from hotplate.deploy.process.growing_file import GrowingFile
from hotplate.deploy.process.printable import printable
from hotplate.platform.controller.interface import Rollout

REMEMBERED_LINES = 100
PIECES_MAX = 16
"""Of a build's log in one look: 4 MiB."""


class RolloutText:
    """The text between two looks at a roll-out, line by line; of builds, from their first line."""

    def __init__(self) -> None:
        self._files: dict[str, GrowingFile] = {}
        self._reason = ""
        self._ends_line = True
        self._shown: deque[str] = deque(maxlen=REMEMBERED_LINES)
        """The last lines that builds have printed."""

    def next(self, rollout: Rollout) -> str:
        """What is new; "" where nothing is. Reads files."""
        pieces = [self._printed(file, whole=rollout.over) for file in self._files.values()]
        if rollout.reason and rollout.reason != self._reason:
            self._reason = rollout.reason
            pieces.append(self._own_line(f"hotplate: {rollout.reason}"))
        for log in rollout.build_logs:
            if log not in self._files:
                self._files[log] = GrowingFile(Path(log))
        if rollout.failed:
            known = set(self._shown)
            lines = [line for line in rollout.log_tail if line not in known]
            pieces += [self._own_line(f"  | {line}") for line in lines]
        return "".join(pieces)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _printed(self, file: GrowingFile, *, whole: bool) -> str:
        text, pieces = file.read(), 1
        while (whole or pieces < PIECES_MAX) and (more := file.read()):
            text, pieces = text + more, pieces + 1
        if text:
            self._ends_line = text.endswith("\n")
            self._shown.extend(text.splitlines())
        return text

    def _own_line(self, text: str) -> str:
        before = "" if self._ends_line else "\n"
        self._ends_line = True
        return f"{before}{printable(text)}\n"
