"""A device without hardware: a copy engine that really copies, later and at its own speed."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from hotplate.serving.streaming.device import Event
from tests.support.imported_later import imported_later
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    import torch
else:
    torch = imported_later("torch")

PIECE_BYTES = 64 << 10
"""Then a wait fails, so that a failing test ends."""


class Passed:
    """An event: passed when the engine gets there."""

    def __init__(self) -> None:
        self._passed = threading.Event()

    def wait(self) -> None:
        assert self._passed.wait(PATIENCE_S), "the engine stands still"

    def set(self) -> None:
        self._passed.set()

    @property
    def has_passed(self) -> bool:
        return self._passed.is_set()


class SlowDevice:
    """Reads pinned memory when the copy is made, not when it is asked for; as a GPU does."""

    def __init__(self, bytes_per_s: float = float("inf")) -> None:
        self._bytes_per_s = bytes_per_s
        self._copies: queue.SimpleQueue[tuple[torch.Tensor, torch.Tensor, Passed] | None]
        self._copies = queue.SimpleQueue()
        self._may_run = threading.Event()
        self._may_run.set()
        self.pinned_bytes = 0
        self.copied: list[int] = []
        """Size of each copy that was asked for."""
        self.handed_over = 0
        self.asked = threading.Condition()
        self._engine = threading.Thread(target=self._run, daemon=True)
        self._engine.start()

    def halt(self) -> None:
        """Make no copy until `go`."""
        self._may_run.clear()

    def go(self) -> None:
        self._may_run.set()

    def close(self) -> None:
        self.go()
        self._copies.put(None)
        self._engine.join()

    def wait_for_copies(self, count: int) -> None:
        """Returns when that many copies have been asked for."""
        with self.asked:
            assert self.asked.wait_for(lambda: len(self.copied) >= count, PATIENCE_S)

    def pin(self, size_bytes: int) -> torch.Tensor:
        self.pinned_bytes += size_bytes
        return torch.zeros(size_bytes, dtype=torch.uint8)

    def allocate(self, size_bytes: int) -> torch.Tensor:
        return torch.full((size_bytes,), 0xEE, dtype=torch.uint8)

    def copy(self, pinned: torch.Tensor, target: torch.Tensor) -> Event:
        assert pinned.shape == target.shape
        passed = Passed()
        self._copies.put((pinned, target, passed))
        with self.asked:
            self.copied.append(len(target))
            self.asked.notify_all()
        return passed

    def hand_over(self, memory: Any, event: Event) -> None:
        event.wait()  # this thread is its own stream
        self.handed_over += 1

    def _run(self) -> None:
        while (copy := self._copies.get()) is not None:
            pinned, target, passed = copy
            for at in range(0, len(target), PIECE_BYTES):
                self._may_run.wait()
                piece = pinned[at : at + PIECE_BYTES]
                time.sleep(len(piece) / self._bytes_per_s)  # noqa: TID251  (the link's own time)
                target[at : at + PIECE_BYTES] = piece
            passed.set()
