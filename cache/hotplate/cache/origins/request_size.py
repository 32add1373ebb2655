"""How much of a file is requested at once where a call returns only after its last byte.

fsspec works that way. A request for a whole chunk from a slow origin would take longer than a fetch
may go without progress, although bytes come all the time. So a slow origin is asked for as much as
comes in a moment, and a fast one for whole chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hotplate.cache.errors import CacheError

PIECE_S = 2.0
"""How long a piece may take. Even if the speed falls to a tenth, the fetch does not count as
stalled."""

LEAST_BYTES = 64 << 10
"""The smallest piece, however slow the origin; and the first one, while its speed is unknown."""

_GROWTH = 4
"""The most that one fast piece enlarges the next: a first burst says little of what follows."""


class RequestSize:
    """The request size of one origin, for all threads that read there."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.piece_bytes = LEAST_BYTES
        self._clock = clock

    def pieces(self, fs: Any, path: str, offset: int, view: memoryview) -> Iterator[int]:
        """Fills `view` with the bytes of a file of an fsspec file system from `offset` on.

        Yields, after each piece, how many bytes have come. Ends early where the file system gave
        more or fewer bytes than it was asked for.
        """
        # Readers that open the file would read megabytes ahead, and discard them with each piece.
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
        """A piece came in that time. A small piece is no reason to ask for smaller ones."""
        fit = int(piece_bytes * min(_GROWTH, PIECE_S / max(took_s, 1e-6)))
        if took_s > PIECE_S:
            self.piece_bytes = max(LEAST_BYTES, min(self.piece_bytes, fit))
        else:
            self.piece_bytes = max(self.piece_bytes, fit)


def report(pieces: Iterable[int], on_progress: Callable[[int], None]) -> None:
    """Reports every piece; an error that ends them gets how many bytes had come in vain."""
    got = 0
    try:
        for got in pieces:
            on_progress(got)
    except CacheError as error:
        error.body_bytes = got
        raise
