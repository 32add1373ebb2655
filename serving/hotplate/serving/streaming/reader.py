"""`StreamedFile`: what `safetensors.safe_open` gives, for a file whose bytes still arrive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any

from safetensors import SafetensorError

from hotplate.serving.streaming.header import (
    LENGTH_BYTES,
    Entry,
    Header,
    data_start,
    elements,
    parse_header,
)
from hotplate.serving.streaming.source import Source
from hotplate.serving.streaming.stock import read_one

TORCH_FRAMEWORKS = frozenset(("pt", "torch", "pytorch"))

_TORCH_DTYPES = {
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


def read_header(source: Source) -> Header:
    """Wait for the header alone. Raises SafetensorError if it is not valid, OSError if lost."""
    lease = source.lease() if source.size_bytes else memoryview(b"")
    prefix_bytes = min(LENGTH_BYTES, source.size_bytes)
    source.wait(0, prefix_bytes)
    start = data_start(bytes(lease[:prefix_bytes]), source.size_bytes)
    source.wait(LENGTH_BYTES, start)
    return parse_header(bytes(lease[LENGTH_BYTES:start]), source.size_bytes)


class StreamedFile:
    """Same surface and results as the stock object; only `get_tensor`, `get_tensors` and a
    slice's `[...]` wait, each for its own bytes. They raise OSError if those cannot be had.

    Tensors on the CPU are views of the process's private map and keep it alive.
    """

    def __init__(self, source: Source, header: Header, framework: str, device: Any) -> None:
        self._header: Header | None = header
        self._source = source
        self._framework = framework
        self._device = device
        self._lease: memoryview | None = source.lease()

    def __enter__(self) -> StreamedFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._header = self._lease = None

    def keys(self) -> list[str]:
        """Names, sorted."""
        return sorted(self._opened().tensors)

    def offset_keys(self) -> list[str]:
        """Names, in the order of their bytes."""
        return list(self._opened().tensors)

    def metadata(self) -> dict[str, str] | None:
        """The header's free texts; None where it has none."""
        metadata = self._opened().metadata
        return None if metadata is None else dict(metadata)

    def get_slice(self, name: str) -> StreamedTensor:
        """A stand-in for the tensor, which knows shape and dtype and can be indexed."""
        entry = self._opened().tensors.get(name)
        if entry is None:
            raise SafetensorError(f"File does not contain tensor {name}")
        assert self._lease is not None
        data = self._lease[entry.start : entry.stop]
        if self._framework in TORCH_FRAMEWORKS and entry.dtype in _TORCH_DTYPES:
            return TorchTensor(self._source, entry, data, self._device)
        return ForeignTensor(self._source, entry, data, self._framework, self._device)

    def get_tensor(self, name: str) -> Any:
        """The whole tensor."""
        return self.get_slice(name).whole()

    def get_tensors(self) -> dict[str, Any]:
        """Every tensor by name, in the order of their bytes."""
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def _opened(self) -> Header:
        if self._header is None:
            raise SafetensorError("File is closed")
        return self._header


class StreamedTensor(ABC):
    """One tensor of a streamed file, before its bytes are needed."""

    def __init__(self, source: Source, entry: Entry, data: memoryview) -> None:
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

    def _wait(self, start: int = 0, stop: int | None = None) -> None:
        """For bytes `start:stop` of this tensor, by default all."""
        stop = len(self._data) if stop is None else stop
        self._source.wait(self._entry.start + start, self._entry.start + stop)


class TorchTensor(StreamedTensor):
    """Becomes a `torch.Tensor`: a view of the map on the CPU, a copy on other devices."""

    def __init__(self, source: Source, entry: Entry, data: memoryview, device: Any) -> None:
        super().__init__(source, entry, data)
        self._device = device

    def whole(self) -> Any:
        self._wait()
        return self._place(self._view())

    def __getitem__(self, index: Any) -> Any:
        if not self._aligned() or not _is_basic(index):
            self._wait()
            return self._place(self._view()[index])
        view = self._view()
        part = view[index]  # indexes and strides only: no byte is read here
        self._wait(*_extent(view, part))
        return self._place(part)

    def _view(self) -> Any:
        import torch

        dtype = getattr(torch, _TORCH_DTYPES[self._entry.dtype])
        if not elements(self._entry):
            return torch.empty(self._entry.shape, dtype=dtype)
        # Kernels may rely on alignment, which the format does not promise: then copy.
        data = self._data if self._aligned() else bytearray(self._data)
        return torch.frombuffer(data, dtype=dtype).reshape(self._entry.shape)

    def _aligned(self) -> bool:
        count = elements(self._entry)
        return not count or self._entry.start % (len(self._data) // count) == 0

    def _place(self, tensor: Any) -> Any:
        """The one way to a device: staging through pinned memory belongs here."""
        return tensor if self._device in (None, "cpu") else tensor.to(self._device)


class ForeignTensor(StreamedTensor):
    """Becomes another framework's tensor, made by the stock library from a copy in memory."""

    def __init__(
        self, source: Source, entry: Entry, data: memoryview, framework: str, device: Any
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


def _is_basic(index: Any) -> bool:
    """Whether indexing with it gives a view, without reading the tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None or part is Ellipsis or type(part) is int or isinstance(part, slice)
        for part in parts
    )


def _extent(view: Any, part: Any) -> tuple[int, int]:
    """First and last byte + 1 that `part` takes of `view`, relative to it."""
    if not part.numel():
        return 0, 0
    start = part.data_ptr() - view.data_ptr()
    steps = zip(part.shape, part.stride())  # noqa: B905  (strict is Python 3.10)
    last = sum((length - 1) * stride for length, stride in steps)
    return start, start + (last + 1) * part.element_size()
