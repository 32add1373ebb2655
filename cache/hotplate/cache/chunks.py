"""The chunks of one blob on their way here: missing → fetching → verified.

Decides what to fetch next, what to try again and when to give up. No I/O, no clock: callers
pass `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from hotplate.cache.errors import (
    CacheError,
    ChunkCorrupt,
    NoSpace,
    OriginUnavailable,
    UnknownBlob,
    UnknownUrl,
    VersionChanged,
)

STALL_S = 30.0
"""Without a verified chunk for that long, readers are told rather than left hanging."""

CORRUPT_REFETCHES = 3
"""Bytes damaged on the way are damaged once; damaged at the origin, always."""

_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 2.0


class Chunks:
    """The state of one blob's chunks. Each chunk is fetched by one caller at a time."""

    def __init__(self, name: str, count: int, stall_s: float = STALL_S) -> None:
        """`name` is how messages call the blob: a file's path."""
        self.name = name
        self.count = count
        self.stall_s = stall_s
        self.whole = True
        """Whether all of it is to come, or only what readers want."""
        self._missing = dict.fromkeys(range(count))
        self._wanted: dict[int, None] = {}
        self._fetching: set[int] = set()
        self._verified: set[int] = set()
        self._not_before: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._corruptions: dict[int, int] = {}
        self._progress_at = 0.0

    @property
    def complete(self) -> bool:
        return len(self._verified) == self.count

    def want(self, indices: Iterable[int]) -> None:
        """A reader waits for these: they come before all others, in the order asked for."""
        for index in indices:
            if 0 <= index < self.count and index not in self._verified:
                self._wanted[index] = None

    def next(self, now: float, wanted_only: bool = False) -> int | None:
        """Takes the chunk to fetch now, or None; it is then the caller's until it reports."""
        first = (index for index in self._wanted if index in self._missing)
        rest = () if wanted_only or not self.whole else self._missing
        for candidates in (first, rest):
            for index in candidates:
                if self._not_before.get(index, now) <= now:
                    return self._take(index, now)
        return None

    def _take(self, index: int, now: float) -> int:
        if not self._fetching and not self._failures:
            self._progress_at = now  # nobody tried until now, so nothing has stalled
        del self._missing[index]
        self._fetching.add(index)
        return index

    def verified(self, index: int, now: float) -> None:
        self._fetching.discard(index)
        self._verified.add(index)
        self._progress_at = now
        for record in (self._wanted, self._not_before, self._failures, self._corruptions):
            record.pop(index, None)

    def give_back(self, index: int) -> None:
        """The chunk was not got, and that says nothing of the origin: it is missing again."""
        self._fetching.discard(index)
        # In front: file order is what readers are served in.
        self._missing = {index: None, **self._missing}

    def failed(self, index: int, error: CacheError, now: float) -> CacheError | None:
        """An attempt failed. None: it will be made again; else the error the blob fails with."""
        self.give_back(index)
        if isinstance(error, (UnknownBlob, UnknownUrl, VersionChanged, NoSpace)):
            return error
        if isinstance(error, ChunkCorrupt):
            times = self._corruptions[index] = self._corruptions.get(index, 0) + 1
            if times > CORRUPT_REFETCHES:
                return ChunkCorrupt(
                    f"{self.name}: chunk {index} of {self.count} was corrupt {times} times; "
                    "push it to the origin again"
                )
            return None
        times = self._failures[index] = self._failures.get(index, 0) + 1
        backoff_s = min(_FIRST_BACKOFF_S * 2 ** (times - 1), _LAST_BACKOFF_S)
        self._not_before[index] = now + backoff_s
        if now - self._progress_at >= self.stall_s:
            return self._stalled(str(error))
        return None

    def wakes_at(self) -> float | None:
        """When a chunk held back after a failure may be tried again."""
        held_back = (at for index, at in self._not_before.items() if index in self._missing)
        return min(held_back, default=None)

    def stalls_at(self) -> float | None:
        """When the attempts under way will have gone without progress for too long."""
        return self._progress_at + self.stall_s if self._fetching else None

    def stalled(self, now: float) -> CacheError | None:
        """The error the blob fails with when attempts under way deliver nothing."""
        at = self.stalls_at()
        return self._stalled("the origin hangs") if at is not None and now >= at else None

    def _stalled(self, reason: str) -> CacheError:
        return OriginUnavailable(
            f"{self.name}: no chunk arrived in {self.stall_s:g} s, "
            f"{len(self._verified)} of {self.count} are here; last: {reason}"
        )
