"""How a file's bytes get to a device: arrived → pinned slot → device, all three at once.

A few threads read what arrives into pinned memory, and the device's copy engine takes it from
there. A slot is filled again only when the engine is done with it. What is in memory already is
copied by PyTorch's own threads, which need no turn of the interpreter.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from hotplate.serving.streaming.device import Device, Event

if TYPE_CHECKING:  # a standby makes its ring in environments without safetensors too
    from hotplate.serving.streaming.header import TensorEntry

SLOT_BYTES = 32 << 20
"""Copied in 0.6 ms at 50 GB/s. A thread needs the interpreter some ten times for each, and every
time another core has to wake: with slots of 16 MiB an H200 got two thirds of this."""
SLOTS = 6
THREADS = max(2, min(6, (os.cpu_count() or 1) // 2))
"""One reads 5-10 GB/s; six bring all that may arrive."""
COPIERS = 2
"""One begins the device's copy of a slot while PyTorch's threads fill the other's."""
_ALIGNMENT_BYTES = 16
"""What kernels with vector loads want of a tensor's address."""


class Bytes(Protocol):
    """The source of bytes: a file that may still arrive."""

    def wait(self, start: int, stop: int) -> None:
        """Block until these bytes are there. Raises OSError if they cannot be brought."""

    def read_into(self, start: int, view: memoryview) -> None:
        """Fill `view` with the bytes from `start`, which are there."""


@runtime_checkable
class BytesInMemory(Bytes, Protocol):
    """Bytes that this process can also read where they are."""

    def arrived(self, start: int, stop: int) -> bool:
        """Whether these bytes are there; does not wait."""

    def memory(self, start: int, stop: int) -> memoryview:
        """These bytes, which are there."""


class Run(NamedTuple):
    """Neighbouring tensors that make one copy, and share one piece of the device's memory."""

    data: Bytes
    start: int
    stop: int
    entries: Sequence[tuple[str, TensorEntry]]


def runs(tensors: Iterable[tuple[str, TensorEntry, Bytes]], limit_bytes: int) -> Iterator[Run]:
    """Cut tensors, each with the source of its bytes, into runs of at most `limit_bytes`.

    A larger tensor is a run of its own, and one that would lie unaligned begins another. To keep
    one tensor of a run is to keep all of the run's memory, which is why runs are small.
    """
    run: list[tuple[str, TensorEntry]] = []
    read: Bytes | None = None
    for name, entry, data in tensors:
        if run and read is not None:
            start, stop = run[0][1].start, run[-1][1].stop
            near = read is data and stop == entry.start and entry.stop - start <= limit_bytes
            if not near or (entry.start - start) % _ALIGNMENT_BYTES:
                yield Run(read, start, stop, run)
                run = []
        run.append((name, entry))
        read = data
    if run and read is not None:
        yield Run(read, run[0][1].start, run[-1][1].stop, run)


class _Slot:
    """A piece of pinned memory, and the event until which the engine reads it."""

    def __init__(self, pinned: Any) -> None:
        self.pinned = pinned
        self.view = memoryview((ctypes.c_ubyte * len(pinned)).from_address(pinned.data_ptr()))
        self.copied: Event | None = None

    @property
    def free(self) -> bool:
        return self.copied is None or self.copied.has_passed


class Ring:
    """The pinned memory of one device."""

    def __init__(self, device: Device, slots: int = SLOTS, slot_bytes: int = SLOT_BYTES):
        self.slot_bytes = slot_bytes
        self._device = device
        self._unmade = slots
        self._given: deque[_Slot] = deque()
        """Slots in use, in the order in which the engine will be done with them."""
        self._changed = threading.Condition()

    def fill(self) -> None:
        """Make every slot now: pinning takes long."""
        slots = [self.take() for _ in range(self._unmade)]
        for slot in slots:
            self.give(slot, None)

    def take(self) -> _Slot:
        """A slot that the engine does not read; blocks until there is one."""
        slot = self._next()
        if slot is None:
            return _Slot(self._device.pin(self.slot_bytes))
        if slot.copied is not None:
            slot.copied.wait()
            slot.copied = None
        return slot

    def _next(self) -> _Slot | None:
        """The slot that is free first; None: make another."""
        with self._changed:
            while True:
                if self._given and (not self._unmade or self._given[0].free):
                    return self._given.popleft()
                if self._unmade:
                    self._unmade -= 1
                    return None
                self._changed.wait()

    def give(self, slot: _Slot, copied: Event | None) -> None:
        """Return a slot; the next one that takes it waits for the event."""
        slot.copied = copied
        with self._changed:
            self._given.append(slot)
            self._changed.notify()


class Landing:
    """Memory of a device that is being filled."""

    def __init__(self, device: Device, memory: Any, copies: list[Future[Event]]) -> None:
        self._device = device
        self._memory = memory
        self._copies = copies

    def memory(self) -> Any:
        """The flat bytes, for use by this thread. Blocks until every copy has begun.

        Raises OSError if the bytes cannot be brought.
        """
        for copy in self._copies:
            self._device.hand_over(self._memory, copy.result())
        return self._memory

    def cancel(self) -> None:
        """Give up the copies that have not begun."""
        for copy in self._copies:
            copy.cancel()


class Staging:
    """Fills a device's memory, mostly from one file."""

    def __init__(self, device: Device, ring: Ring | None = None) -> None:
        self._device = device
        self._ring = ring or ring_of(device)
        self._readers = ThreadPoolExecutor(THREADS, "hotplate-staging")
        self._copiers = ThreadPoolExecutor(COPIERS, "hotplate-copying")

    @property
    def slot_bytes(self) -> int:
        """The most that one copy takes."""
        return self._ring.slot_bytes

    def land(self, data: Bytes, start: int, stop: int) -> Landing:
        """Begin to bring these bytes to the device."""
        memory = self._device.allocate(stop - start)
        step = self._ring.slot_bytes
        spans = [(at, min(at + step, stop)) for at in range(start, stop, step)]
        copies = [self._begin(data, at, end, memory[at - start : end - start]) for at, end in spans]
        return Landing(self._device, memory, copies)

    def close(self) -> None:
        """Take no further copies; those under way end by themselves."""
        for pool in (self._readers, self._copiers):
            pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, data: Bytes, start: int, stop: int, target: Any) -> Future[Event]:
        if isinstance(data, BytesInMemory) and data.arrived(start, stop) and _has_cores():
            return self._copiers.submit(self._carry, _copy, data, start, target)
        return self._readers.submit(self._carry, _read, data, start, target)

    def _carry(self, fill: Fill, data: Any, start: int, target: Any) -> Event:
        size_bytes = len(target)
        data.wait(start, start + size_bytes)  # without a slot, which others could use
        slot = self._ring.take()
        copied = None
        try:
            fill(data, start, slot, size_bytes)
            copied = self._device.copy(slot.pinned[:size_bytes], target)
            return copied
        finally:
            self._ring.give(slot, copied)


Fill = Callable[[Any, int, _Slot, int], None]


def _read(data: Bytes, start: int, slot: _Slot, size_bytes: int) -> None:
    data.read_into(start, slot.view[:size_bytes])


def _copy(data: BytesInMemory, start: int, slot: _Slot, size_bytes: int) -> None:
    import torch

    source = torch.frombuffer(data.memory(start, start + size_bytes), dtype=torch.uint8)
    slot.pinned[:size_bytes].copy_(source)


def _has_cores() -> bool:
    """Whether PyTorch's threads are more than ours."""
    import torch

    return torch.get_num_threads() >= THREADS


def ring_of(device: Device) -> Ring:
    """The device's one ring: pinning takes long, so it is made once and kept."""
    with _rings_lock:
        if device not in _rings:
            _rings[device] = Ring(device)
        return _rings[device]


_rings: dict[Device, Ring] = {}
_rings_lock = threading.Lock()
