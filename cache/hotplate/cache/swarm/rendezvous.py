"""In which order the participants of a content bring each of its chunks."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b


class Rendezvous:
    """An order of the participants for each chunk, the same on every node that knows them.

    As many chunks as there are participants make a block, which has its own shuffled round; each
    of its chunks begins one place further. So in any block each node has each place once, and all
    have the same to send. Who is left out keeps its place, so that nobody else's changes. Whoever
    comes or goes changes them all; `participants.py` says when a new order holds.
    """

    def __init__(self, key: str, me: str) -> None:
        self._key = key
        self._me = me
        self.others: list[str] = []
        self._names = [me]
        self._rounds: dict[int, list[str]] = {}

    def set(self, others: Iterable[str]) -> None:
        """Who takes part besides this node."""
        self.others = list(others)
        self._names = [self._me, *self.others]
        self._rounds.clear()

    def first(self, index: int, left: Collection[str]) -> str | None:
        """Who brings the chunk from the origin, of those not `left`; None: this node."""
        return next((name for name in self.before(index) if name not in left), None)

    def before(self, index: int) -> Iterator[str]:
        """Who comes before this node, the first first."""
        return itertools.takewhile(lambda name: name != self._me, self.around(index))

    def around(self, index: int) -> Iterator[str]:
        """All participants, the first first."""
        block, start = divmod(index, len(self._names))
        names = self._round(block)
        return itertools.chain(names[start:], names[:start])

    def _round(self, block: int) -> list[str]:
        """The names in the block's order."""
        found = self._rounds.get(block)
        if found is None:
            seed = f"{self._key}{block}"
            found = sorted(self._names, key=lambda name: rank(seed, name))
            self._rounds[block] = found
        return found


def rank(seed: str, name: str) -> bytes:
    """Where a name stands among others, by seed: like chance, but the same everywhere."""
    return blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
