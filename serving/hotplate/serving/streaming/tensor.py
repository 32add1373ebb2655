"""One tensor of a streamed file: a stand-in until its bytes are needed, and what it becomes."""

from __future__ import annotations

import ctypes
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from hotplate.serving.streaming.header import TensorEntry, elements
from hotplate.serving.streaming.library import read_one
from hotplate.serving.streaming.sharding import spans
from hotplate.serving.streaming.source import StreamSource
from hotplate.serving.streaming.staging import Bytes, Staging

TORCH_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
    "C64": "complex64",
}
"""What PyTorch calls the header's dtypes."""


class StreamedTensor(ABC):
    """A tensor by its header entry, which can wait for its bytes."""

    def __init__(self, source: StreamSource, entry: TensorEntry, data: memoryview) -> None:
        self._source = source
        self._entry = entry
        self._data = data

    def get_shape(self) -> list[int]:
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        """As the header names it, for example `BF16`."""
        return self._entry.dtype

    @abstractmethod
    def whole(self) -> Any:
        """The tensor, when all its bytes are there."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """A part of it, as safetensors' own slices give it."""

    def spans(self, index: Any = ()) -> Iterator[tuple[int, int]]:
        """The file's bytes (start, stop) that `self[index]` needs."""
        yield self._entry.start, self._entry.stop

    def _wait(self) -> None:
        """Wait for all of it."""
        self._source.wait(self._entry.start, self._entry.stop)


class TorchTensor(StreamedTensor):
    """Becomes a `torch.Tensor`: a view of the map on the CPU, a copy on other devices."""

    def __init__(
        self,
        source: StreamSource,
        entry: TensorEntry,
        data: memoryview,
        device: Any,
        staging: Staging | None,
    ) -> None:
        super().__init__(source, entry, data)
        self._device = device
        self._staging = staging

    def whole(self) -> Any:
        if self._staging is not None:
            return self[()]
        self._wait()
        return self._place(self._view())

    def __getitem__(self, index: Any) -> Any:
        if not _is_basic(index):
            self._wait()
            return self._place(self._view()[index])
        if self._staging is not None:
            entry, data = self.packed(index)
            return typed(self._staging.land(data, entry.start, entry.stop).memory(), entry)
        part = self._part(index)
        self._await(part)
        return self._place(self._values(part))

    def spans(self, index: Any = ()) -> Iterator[tuple[int, int]]:
        return super().spans() if index == () else self._spans(self._part(index))

    def packed(self, index: Any) -> tuple[TensorEntry, Bytes]:
        """`self[index]` as one piece of bytes, and its source: the file, if it is one piece
        there."""
        if index == ():
            return self._entry, self._source
        part = self._part(index)
        shape = tuple(part.shape if self._aligned() else part.shape[:-1])
        if not part.numel():
            return self._entry._replace(shape=shape, stop=self._entry.start), self._source
        if part.is_contiguous():
            start = self._entry.start + part.data_ptr() - self._address
            return TensorEntry(self._entry.dtype, shape, start, start + part.nbytes), self._source

        def gather() -> Any:
            self._await(part)
            return part.contiguous()

        return TensorEntry(self._entry.dtype, shape, 0, part.nbytes), Gathered(gather)

    def _part(self, index: Any) -> Any:
        """A view of the part, of bytes where the tensor lies unaligned. No byte is read."""
        import torch

        torch.empty(self._entry.shape, device="meta")[index]  # raises for a wrong index
        if self._aligned():
            return self._view()[index]
        parts = index if isinstance(index, tuple) else (index,)
        inner = (slice(None),) if Ellipsis in parts else ()
        item_bytes = len(self._data) // elements(self._entry)
        view = torch.frombuffer(self._data, dtype=torch.uint8)
        return view.reshape(*self._entry.shape, item_bytes)[(*parts, *inner)]

    def _values(self, part: Any) -> Any:
        """The part as a tensor of its own dtype."""
        if self._aligned():
            return part
        # Kernels may rely on alignment, which the format does not promise: then copy.
        return typed(part.clone().reshape(-1), self._entry._replace(shape=part.shape[:-1]))

    def _spans(self, part: Any) -> Iterator[tuple[int, int]]:
        if not part.numel():
            return
        first = self._entry.start + part.data_ptr() - self._address
        hole_bytes = self._source.chunk_bytes
        for start, stop in spans(part.shape, part.stride(), part.element_size(), hole_bytes):
            yield first + start, first + stop

    def _await(self, part: Any) -> None:
        needed = list(self._spans(part))
        if len(needed) > 1:
            self._source.want(needed)
        for start, stop in needed:
            self._source.wait(start, stop)

    @property
    def _address(self) -> int:
        return ctypes.addressof(ctypes.c_ubyte.from_buffer(self._data))

    def _view(self) -> Any:
        """All of it; a copy where it lies unaligned."""
        import torch

        dtype = getattr(torch, TORCH_DTYPES[self._entry.dtype])
        if not elements(self._entry):
            return torch.empty(self._entry.shape, dtype=dtype)
        data = self._data if self._aligned() else bytearray(self._data)
        return torch.frombuffer(data, dtype=dtype).reshape(self._entry.shape)

    def _aligned(self) -> bool:
        count = elements(self._entry)
        return not count or self._entry.start % (len(self._data) // count) == 0

    def _place(self, tensor: Any) -> Any:
        if self._staging is not None:
            flat = tensor.contiguous()
            landing = self._staging.land(Gathered(lambda: flat), 0, flat.nbytes)
            return typed(landing.memory(), self._entry._replace(shape=tuple(flat.shape)))
        return tensor if self._device in (None, "cpu") else tensor.to(self._device)


class ForeignTensor(StreamedTensor):
    """Becomes another framework's tensor, made by the stock library from a copy in memory."""

    def __init__(
        self,
        source: StreamSource,
        entry: TensorEntry,
        data: memoryview,
        framework: str,
        device: Any,
    ) -> None:
        super().__init__(source, entry, data)
        self._framework = framework
        self._device = device

    def whole(self) -> Any:
        self._wait()
        with read_one(self._entry, self._data, self._framework, self._device) as (file, name):
            return file.get_tensor(name)

    def __getitem__(self, index: Any) -> Any:
        self._wait()
        with read_one(self._entry, self._data, self._framework, self._device) as (file, name):
            return file.get_slice(name)[index]


class Gathered:
    """The bytes of a contiguous tensor in the host's memory, made when they are first needed."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._tensor: Any = None

    def wait(self, start: int, stop: int) -> None:
        """As `Bytes.wait`."""
        with self._making:
            if self._tensor is None:
                self._tensor = self._make()

    def read_into(self, start: int, view: memoryview) -> None:
        """As `Bytes.read_into`."""
        target = ctypes.addressof(ctypes.c_ubyte.from_buffer(view))
        ctypes.memmove(target, self._tensor.data_ptr() + start, len(view))


def typed(memory: Any, entry: TensorEntry) -> Any:
    """Flat bytes as the tensor that they are."""
    import torch

    return memory.view(getattr(torch, TORCH_DTYPES[entry.dtype])).reshape(entry.shape)


def _is_basic(index: Any) -> bool:
    """Whether indexing with it gives a view, without reading the tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None or part is Ellipsis or type(part) is int or isinstance(part, slice)
        for part in parts
    )
