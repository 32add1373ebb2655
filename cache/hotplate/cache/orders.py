"""In which order the participants of a content bring each of its chunks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b


class Orders:
    """An order of the participants for each chunk, the same on every node that knows them.

    As many chunks as there are participants make a block, which has its own shuffled round; each
    of its chunks begins one place further. So in any block each node has each place once, and all
    have the same to send. Who is left out keeps its place, so that nobody else's changes.
    """

    def __init__(self, key: str, me: str) -> None:
        self._key = key
        self._me = me
        self._names = [me]
        self._rounds: dict[int, tuple[list[str], int]] = {}

    def set(self, others: Iterable[str]) -> None:
        """Who takes part besides this node."""
        self._names = [self._me, *others]
        self._rounds.clear()

    def above(self, index: int, left: Collection[str], branches: int) -> str | None:
        """Whom this node asks for the chunk; None when it is the first of those not `left`."""
        count = len(self._names)
        if count == 1:
            return None
        block, start = divmod(index, count)
        names, mine = self._round(block)
        place = (mine - start) % count
        if left:
            before = [names[(start + at) % count] for at in range(place)]
            before = [name for name in before if name not in left]
            return before[(len(before) - 1) // branches] if before else None
        return names[(start + (place - 1) // branches) % count] if place else None

    def _round(self, block: int) -> tuple[list[str], int]:
        """The names in the block's order, and where this node stands."""
        found = self._rounds.get(block)
        if found is None:
            seed = f"{self._key}{block}"
            names = sorted(self._names, key=lambda name: rank(seed, name))
            found = self._rounds[block] = names, names.index(self._me)
        return found


def rank(seed: str, name: str) -> bytes:
    """Where a name stands among others, by seed: like chance, but the same everywhere."""
    return blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
