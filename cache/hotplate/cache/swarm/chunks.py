"""The chunks of one blob on their way here: missing → fetching → verified.

Decides what to fetch next, what to try again and when to give up. No I/O, no clock: callers
pass `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hotplate.cache.errors import (
    CacheError,
    ChunkCorrupt,
    Misled,
    NoSpace,
    OriginUnavailable,
    UnknownBlob,
    UnknownUrl,
    VersionChanged,
)

STALL_S = 30.0
"""Without a new byte for that long, readers get an error rather than hang."""

CORRUPT_REFETCHES = 3
"""Bytes that were damaged on the way are damaged once; those damaged at the origin, always."""

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
        self._missing = (1 << count) - 1
        self._wanted: dict[int, None] = {}
        self._fetching: set[int] = set()
        self._verified: set[int] = set()
        self.verified_bits = 0
        """The verified chunks as a bitmap: chunk i is bit i."""
        self._not_before: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._corruptions: dict[int, int] = {}
        self._furthest: dict[int, int] = {}
        self._progress_at = 0.0
        self.progress = 0
        """Grows whenever new bytes come."""
        self._tried = False
        """Whether an attempt has failed since the last progress."""

    @property
    def complete(self) -> bool:
        return len(self._verified) == self.count

    def want(self, indices: Iterable[int]) -> None:
        """A reader waits for these: they come before all others, in the order asked for."""
        for index in indices:
            if 0 <= index < self.count and index not in self._verified:
                self._wanted[index] = None

    @property
    def any_wanted(self) -> bool:
        """Whether a reader waits for a chunk."""
        return bool(self._wanted)

    def wanted(self, now: float) -> Iterator[int]:
        """The missing chunks that a reader waits for and that may be tried now."""
        return (index for index in self._wanted if self._may_try(index, now))

    def missing_bits(self, now: float) -> int:
        """The missing chunks that are to come and may be tried now, as a bitmap."""
        missing = self._missing if self.whole else 0
        for index, at in self._not_before.items():
            if at > now:
                missing &= ~(1 << index)
        return missing

    def _may_try(self, index: int, now: float) -> bool:
        taken = index in self._fetching or index in self._verified
        return not taken and self._not_before.get(index, now) <= now

    def awaited(self, index: int) -> bool:
        """Whether the chunk is to come."""
        return self.whole or index in self._wanted or index in self._fetching

    def take(self, index: int, now: float) -> None:
        """A missing chunk becomes the caller's until it reports."""
        if not self._fetching and not self._tried:
            self._progress_at = now  # there was no attempt until now, so nothing has stalled
        self._missing &= ~(1 << index)
        self._fetching.add(index)

    def received(self, index: int, got_bytes: int, now: float) -> None:
        """`got_bytes` of a chunk under way are here. What an earlier attempt got too is no
        progress."""
        if got_bytes > self._furthest.get(index, 0):
            self._furthest[index] = got_bytes
            self.note_progress(now)
            self.progress += 1

    def note_progress(self, now: float) -> None:
        """Bytes came, here or to the peer that brings a chunk for us: nothing has stalled."""
        self._progress_at = now

    def verified(self, index: int, now: float) -> None:
        self._fetching.discard(index)
        self._verified.add(index)
        self.verified_bits |= 1 << index
        self.note_progress(now)
        self.progress += 1
        self._tried = False
        for record in (
            *(self._wanted, self._furthest),
            *(self._not_before, self._failures, self._corruptions),
        ):
            record.pop(index, None)

    def give_back(self, index: int) -> None:
        """The chunk did not come, which says nothing of the origin: it is missing again."""
        self._fetching.discard(index)
        self._missing |= 1 << index

    def clear_backoff(self, index: int) -> None:
        """Another peer has the chunk now: it need not wait until the origin may be tried again."""
        self._not_before.pop(index, None)

    def cannot(self, index: int) -> bool:
        """Whether the origin did not give the chunk when it was last tried."""
        return index in self._failures and index not in self._fetching

    def missed(self, index: int, now: float) -> CacheError | None:
        """A peer did not give the chunk. None: others will; else the error the blob fails with."""
        self.give_back(index)
        self._tried = True
        return self._given_up("no peer gives it", now)

    def failed(self, index: int, error: CacheError, now: float) -> CacheError | None:
        """An attempt failed. None: it will be made again; else the error the blob fails with."""
        self.give_back(index)
        self._tried = True
        if isinstance(error, (UnknownBlob, UnknownUrl, VersionChanged, Misled, NoSpace)):
            return error
        if isinstance(error, ChunkCorrupt):
            times = self._corruptions[index] = self._corruptions.get(index, 0) + 1
            if times > CORRUPT_REFETCHES:
                return ChunkCorrupt(
                    f"{self.name}: chunk {index} of {self.count} was corrupt {times} times; "
                    "the origin has other bytes than at first; put those back, or push it again"
                )
            return None
        times = self._failures[index] = self._failures.get(index, 0) + 1
        backoff_s = min(_FIRST_BACKOFF_S * 2 ** (times - 1), _LAST_BACKOFF_S)
        self._not_before[index] = now + backoff_s
        return self._given_up(str(error), now)

    def _given_up(self, reason: str, now: float) -> CacheError | None:
        return self._stalled(reason) if now - self._progress_at >= self.stall_s else None

    def wakes_at(self) -> float | None:
        """When a chunk held back after a failure may be tried again."""
        held_back = (at for index, at in self._not_before.items() if self._missing >> index & 1)
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
            f"{self.name}: nothing new arrived in {self.stall_s:g} s, "
            f"{len(self._verified)} of {self.count} chunks are here; last: {reason}"
        )
