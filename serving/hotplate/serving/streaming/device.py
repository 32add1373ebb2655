"""Devices that tensors are copied to: memory other than the host's, with its own copy engine."""

from __future__ import annotations

import threading
from typing import Any, Protocol, runtime_checkable


class Event(Protocol):
    """A moment in a device's copy stream."""

    @property
    def has_passed(self) -> bool: ...

    def wait(self) -> None:
        """Block this thread until it has passed."""


@runtime_checkable
class Device(Protocol):
    """One device. All memory is flat `torch.uint8` tensors; thread-safe."""

    def pin(self, size_bytes: int) -> Any:
        """Host memory that the copy engine can read directly."""

    def allocate(self, size_bytes: int) -> Any:
        """Memory of the device, for copies to fill."""

    def copy(self, pinned: Any, target: Any) -> Event:
        """Begin to copy between two of the same size; the event passes when it is done.

        `pinned` must stay as it is until then. Copies are made in the order of the calls. Only
        threads that do nothing else with the device call it.
        """

    def hand_over(self, memory: Any, event: Event) -> None:
        """Orders all that this thread lets the device do with `memory` from now on after
        `event`."""


class CudaEvent:
    """A `torch.cuda.Event`."""

    def __init__(self, event: Any) -> None:
        self.event = event

    @property
    def has_passed(self) -> bool:
        return bool(self.event.query())

    def wait(self) -> None:
        self.event.synchronize()


class CudaDevice:
    """A CUDA (or ROCm) device, with one stream for all copies to it."""

    def __init__(self, device: Any) -> None:
        """`device` is a `torch.device` with an index."""
        import torch

        self._torch: Any = torch  # half of `torch.cuda` has no types
        self._device = device
        self._stream = self._torch.cuda.Stream(device)
        self._entered = threading.local()
        """Whether this thread is in the copy stream: to enter it anew for each copy has threads of
        which each holds the interpreter for moments wait for each other."""

    def pin(self, size_bytes: int) -> Any:
        dtype = self._torch.uint8
        return self._torch.empty(size_bytes, dtype=dtype, device="cpu", pin_memory=True)

    def allocate(self, size_bytes: int) -> Any:
        # From the copy stream's own pool, so that no copy waits until this thread's stream is done
        # with memory that it has freed. Never an inference tensor, since other threads fill it.
        with self._torch.inference_mode(False), self._torch.cuda.stream(self._stream):
            return self._torch.empty(size_bytes, dtype=self._torch.uint8, device=self._device)

    def copy(self, pinned: Any, target: Any) -> Event:
        if not hasattr(self._entered, "stream"):
            self._torch.cuda.set_stream(self._stream)
            self._entered.stream = self._stream
        target.copy_(pinned, non_blocking=True)
        return CudaEvent(self._stream.record_event())

    def hand_over(self, memory: Any, event: Event) -> None:
        assert isinstance(event, CudaEvent)
        stream = self._torch.cuda.current_stream(self._device)
        stream.wait_event(event.event)
        memory.record_stream(stream)  # or it might be given away while this stream still reads it


def device_for(device: Any) -> Device | None:
    """The device to stage copies to; None where a plain `Tensor.to` has to do.

    `device` is what `safe_open` takes (`"cuda:1"`, an index, …), or a `Device` itself.
    """
    if isinstance(device, Device):
        return device
    if device is None or device == "cpu":
        return None
    import torch

    if isinstance(device, int) and not torch.cuda.is_available():
        return None
    where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if where.type != "cuda":
        return None
    index = torch.cuda.current_device() if where.index is None else where.index
    if index not in _cuda:
        _cuda.setdefault(index, CudaDevice(torch.device("cuda", index)))  # other threads ask too
    return _cuda[index]


_cuda: dict[int, CudaDevice] = {}
"""By index: all copies to a device share its stream and its pinned memory."""
