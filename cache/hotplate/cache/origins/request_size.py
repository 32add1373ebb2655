"""How much of a file is asked for at once where a call says nothing before its last byte is here.

fsspec is like that. Who asks such a slow origin for a whole chunk hears nothing for longer than a
fetch is patient, though bytes come all the time. So it is asked for as much as comes in a moment;
a fast one for whole chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hotplate.cache.errors import CacheError

PIECE_S = 2.0
"""How long a piece may take. A speed that falls to a tenth at once is still no silence."""

LEAST_BYTES = 64 << 10
"""Of a piece, however slow the origin; and of the first one, before anything is known of it."""

_GROWTH = 4
"""A first burst says little of what follows."""


class RequestSize:
    """Of one origin, for all threads that read there."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.piece_bytes = LEAST_BYTES
        self._clock = clock

    def pieces(self, fs: Any, path: str, offset: int, view: memoryview) -> Iterator[int]:
        """Fills `view` with the bytes of a file of an fsspec file system from `offset` on.

        Gives, after each piece, how many bytes have come. Ends where the file system gave more or
        less than it was asked for, with fewer than there should be.
        """
        # What reads by opening the file would read megabytes ahead, and drop them with each piece.
        options = {} if fs.async_impl else {"block_size": LEAST_BYTES}
        got = 0
        while got < len(view):
            want = min(self.piece_bytes, len(view) - got)
            start, began = offset + got, self._clock()
            data = fs.cat_file(path, start=start, end=start + want, **options)
            self.took(want, self._clock() - began)
            if len(data) > want:
                return
            view[got : got + len(data)] = data
            got += len(data)
            yield got
            if len(data) < want:
                return

    def took(self, piece_bytes: int, took_s: float) -> None:
        """A piece came in that time. A small one that came fast says nothing against large ones."""
        fit = int(piece_bytes * min(_GROWTH, PIECE_S / max(took_s, 1e-6)))
        if took_s > PIECE_S:
            self.piece_bytes = max(LEAST_BYTES, min(self.piece_bytes, fit))
        else:
            self.piece_bytes = max(self.piece_bytes, fit)


def report(pieces: Iterable[int], on_progress: Callable[[int], None]) -> None:
    """Tells of every piece; what an error breaks off says how much had come for nothing."""
    got = 0
    try:
        for got in pieces:
            on_progress(got)
    except CacheError as error:
        error.body_bytes = got
        raise
