"""What leaves a tier that is full. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hotplate.machine.free_space import mib


@dataclass(frozen=True)
class EvictionCandidate:
    """A blob in a tier."""

    key: str
    size_bytes: int
    used: tuple[int, int]
    """When it was last used: numbers that order blobs, a later use by larger ones."""
    pin: str = ""
    """Why it has to stay ("in a tree", "leased", …); empty when it may go."""


@dataclass(frozen=True)
class Eviction:
    """Which blobs go, and why these, or why none."""

    victims: tuple[EvictionCandidate, ...]
    reason: str


def evict(candidates: Iterable[EvictionCandidate], lacking_bytes: int) -> Eviction:
    """Chooses blobs of `lacking_bytes` in all: least recently used first, never a pinned one.

    None goes when all of them together would not be enough: the new blob is refused in any case.
    """
    if lacking_bytes <= 0:
        return Eviction((), "it fits")
    pinned: Counter[str] = Counter()
    idle = []
    for one in candidates:
        if one.pin:
            pinned[one.pin] += one.size_bytes
        else:
            idle.append(one)
    victims: list[EvictionCandidate] = []
    found_bytes = 0
    for one in sorted(idle, key=lambda one: one.used):
        if found_bytes >= lacking_bytes:
            break
        victims.append(one)
        found_bytes += one.size_bytes
    if found_bytes < lacking_bytes:
        stays = ", ".join(f"{mib(size)} {pin}" for pin, size in sorted(pinned.items()))
        return Eviction(
            (),
            f"{mib(lacking_bytes)} are lacking and {mib(found_bytes)} could go"
            + (f" ({stays})" if stays else ""),
        )
    return Eviction(
        tuple(victims),
        f"{mib(lacking_bytes)} are lacking: {len(victims)} blobs of {mib(found_bytes)} go, "
        "least recently used first",
    )
