"""The blobs of each tree of this node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator


class ManifestIndex:
    """The manifests kept on this node, by digest, and the digests of the blobs that each names.

    Lives on the event loop.
    """

    def __init__(self) -> None:
        self._blobs: dict[str, frozenset[str]] = {}
        self._held: dict[int, set[str]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._blobs))

    def __contains__(self, digest: str) -> bool:
        return digest in self._blobs

    def put(self, digest: str, blobs: Iterable[str]) -> None:
        """Adds a manifest, which names these blobs."""
        self._blobs[digest] = frozenset(blobs)

    def remove(self, digest: str) -> frozenset[str]:
        """Removes a manifest; the blobs that it named. Raises KeyError."""
        return self._blobs.pop(digest)

    @contextlib.contextmanager
    def held(self) -> Iterator[set[str]]:
        """A set of blobs that no manifest names yet and that stay for the time of the block; any
        thread may add to it."""
        blobs: set[str] = set()
        self._held[id(blobs)] = blobs
        try:
            yield blobs
        finally:
            del self._held[id(blobs)]

    def blobs(self) -> set[str]:
        """All blobs that any manifest names, or that are held."""
        return set[str]().union(*self._blobs.values(), *self._held.values())

    def naming(self, blob: str) -> list[str]:
        """The manifests that name a blob."""
        return [digest for digest, blobs in self._blobs.items() if blob in blobs]
