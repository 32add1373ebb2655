"""Which requests that one gateway has passed on to another have begun in a replica; Python >= 3.9.

The first gateway may hear nothing of the second any longer, which goes on beside it. Then it asks
for its requests back: what has not begun never will, whoever sends it, and may be sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

BEGUN, RECALLED = 4096, 4096
"""The newest so many are known: more than a replica begins, or a gateway passes on to it, in the
time until silence is noticed."""
CELLS = 2 + BEGUN + RECALLED
"""How many have begun, how many were asked for, and the newest of each."""
PASSED = b"hotplate-passed"
DIGITS = 16


class Begun:
    """In memory that all of a replica's processes share."""

    def __init__(
        self, cells: memoryview, alone: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """`cells` are `CELLS` numbers of 8 bytes, 0 at first; no other process changes them within
        `alone()`."""
        self._cells = cells
        self._alone = alone
        self._recalled: set[int] = set()
        self._seen = 0
        """How many of those that were asked for are in the set."""

    def begin(self, passed: bytes) -> bool:
        """Whether the request may begin; if so, it has."""
        number, cells = _number(passed), self._cells
        with self._alone():
            if number in self._known():
                return False
            cells[2 + cells[0] % BEGUN] = number
            cells[0] += 1
        return True

    def recall(self, passed: Iterable[bytes]) -> list[bytes]:
        """Those that have begun; no other of them will."""
        cells, asked = self._cells, {_number(one): one for one in passed}
        with self._alone():
            for number in asked:
                cells[2 + BEGUN + cells[1] % RECALLED] = number
                cells[1] += 1
            begun = set(cells[2 : 2 + BEGUN].tolist())
        return [one for number, one in asked.items() if number in begun]

    def _known(self) -> set[int]:
        """The newest that were asked for, by whichever process."""
        cells, before = self._cells, self._seen
        if cells[1] != before:
            self._seen = cells[1]
            newest = range(max(before, self._seen - RECALLED), self._seen)
            self._recalled.update(cells[2 + BEGUN + each % RECALLED] for each in newest)
            if len(self._recalled) > 2 * RECALLED:
                self._recalled = set(cells[2 + BEGUN :].tolist())
        return self._recalled


def take_passed(scope: Any) -> bytes:
    """Takes what a request can be asked back by out of it; empty = it cannot."""
    headers = scope["headers"]
    for place in range(len(headers) - 1, -1, -1):
        if headers[place][0] == PASSED:
            value: bytes = headers.pop(place)[1]
            return value if len(value) == DIGITS else b""
    return b""


def _number(passed: bytes) -> int:
    """Raises ValueError for what is not hexadecimal."""
    return int.from_bytes(bytes.fromhex(passed.decode()), "big", signed=True)
