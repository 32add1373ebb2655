"""In which order the participants of a content bring each of its chunks."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b


class Rendezvous:
    """An order of the participants for each chunk, the same on every node that knows them.

    As many chunks as there are participants make a block, which has its own shuffled round; each
    of its chunks begins one place further. So in any block each node has each place once, and all
    have the same to send. A participant that is avoided keeps its place, so that no other place
    changes. Any that joins or goes changes all orders; `participants.py` says when a new one holds.
    """

    def __init__(self, key: str, me: str) -> None:
        self._key = key
        self._me = me
        self.others: list[str] = []
        self._names = [me]
        self._rounds: dict[int, list[str]] = {}

    def set(self, others: Iterable[str]) -> None:
        """Sets the participants besides this node."""
        self.others = list(others)
        self._names = [self._me, *self.others]
        self._rounds.clear()

    def first(self, index: int, avoided: Collection[str]) -> str | None:
        """The participant that brings the chunk from the origin, of those not `avoided`; None: this
        node does."""
        return next((name for name in self.before(index) if name not in avoided), None)

    def before(self, index: int) -> Iterator[str]:
        """The participants that come before this node, in order."""
        return itertools.takewhile(lambda name: name != self._me, self.around(index))

    def around(self, index: int) -> Iterator[str]:
        """All participants, in order."""
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
    """The sort key of a name under a seed: as good as random, and the same on every node."""
    return blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
