"""What became of the requests of one process, in the files that `hotplate loadtest` follows."""

from __future__ import annotations

import json
import struct
from pathlib import Path

RECORD = struct.Struct("<ddddHHIQ")
GAP = struct.Struct("<f")
MOST_COMPLAINTS = 20
COMPLAINT_CHARACTERS = 2000


class Records:
    """Kept in memory until `flush` appends them."""

    def __init__(self, folder: Path, process: int) -> None:
        """Raises OSError."""
        self._samples, self._gaps, self._complaints = bytearray(), bytearray(), bytearray()
        names = (f"samples-{process}.bin", f"gaps-{process}.f4", f"complaints-{process}.jsonl")
        self._files = [(folder / name).open("ab", buffering=0) for name in names]
        self._complained = 0

    def add(
        self,
        due_s: float,
        sent_s: float,
        first_byte_s: float,
        end_s: float,
        status: int,
        organization: int,
        events: int,
        number: int,
    ) -> None:
        """One request; seconds from second 0 on."""
        self._samples += RECORD.pack(
            due_s, sent_s, first_byte_s, end_s, status, organization, events, number
        )

    def add_gap(self, seconds: float) -> None:
        """The time between two events of a stream."""
        self._gaps += GAP.pack(seconds)

    def complain(self, status: int, text: str) -> None:
        """The body of an answer that was no success, or why there was none. The first are kept."""
        if self._complained < MOST_COMPLAINTS:
            self._complained += 1
            line = json.dumps({"status": status, "text": text[:COMPLAINT_CHARACTERS]})
            self._complaints += line.encode() + b"\n"

    def flush(self) -> None:
        """Raises OSError; the next call goes on where the disk was full."""
        for file, waiting in zip(
            self._files, (self._samples, self._gaps, self._complaints), strict=True
        ):
            del waiting[: file.write(waiting)]
