"""`StreamedFile`: what `safetensors.safe_open` gives, for a file whose bytes still arrive.

A `source` is the agent's file, leased and mapped; its `header` says where each tensor lies and is
trusted only as far as the file goes. A `tensor` waits for its own bytes alone: on the CPU it is a
view of the map; for a device its bytes go through a ring of pinned memory (`staging`) in the file's
order (`pipeline`), while later ones arrive. `sharding` says which bytes one rank of several needs.
Other readers of such a file, and programs that are started, wait until it is whole (`audit`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from safetensors import SafetensorError

from hotplate.serving.streaming.device import device_for
from hotplate.serving.streaming.header import (
    LENGTH_BYTES,
    SafetensorsHeader,
    data_start,
    parse_header,
)
from hotplate.serving.streaming.library import refuse_name
from hotplate.serving.streaming.pipeline import pipelined
from hotplate.serving.streaming.sharding import Plan
from hotplate.serving.streaming.source import StreamSource
from hotplate.serving.streaming.staging import Staging
from hotplate.serving.streaming.tensor import (
    TORCH_DTYPES,
    ForeignTensor,
    StreamedTensor,
    TorchTensor,
)

TORCH_FRAMEWORKS = frozenset(("pt", "torch", "pytorch"))


def read_header(source: StreamSource) -> SafetensorsHeader:
    """Wait for the header alone. Raises SafetensorError if it is not valid, OSError if lost."""
    lease = source.lease() if source.size_bytes else memoryview(b"")
    prefix_bytes = min(LENGTH_BYTES, source.size_bytes)
    source.wait(0, prefix_bytes)
    start = data_start(bytes(lease[:prefix_bytes]), source.size_bytes)
    source.wait(LENGTH_BYTES, start)
    return parse_header(bytes(lease[LENGTH_BYTES:start]), source.size_bytes)


class StreamedFile:
    """Same surface and results as the stock object; only `get_tensor`, `get_tensors` and a
    slice's `[...]` wait, each for its own bytes. They raise OSError if those cannot be brought.

    Tensors on the CPU are views of the process's private map and keep it alive.
    """

    def __init__(
        self,
        source: StreamSource,
        header: SafetensorsHeader,
        framework: str,
        device: Any,
        staging: Staging | None = None,
    ) -> None:
        """`staging` copies to the device; it is made when it is needed if none is given."""
        self._header: SafetensorsHeader | None = header
        self._source = source
        self._framework = framework
        self._device = device
        self._staging = staging
        self._lease: memoryview | None = source.lease()

    def __enter__(self) -> StreamedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._header = self._lease = None
        if self._staging is not None:
            self._staging.close()

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
        tensors = self._opened().tensors
        entry = tensors.get(name) if isinstance(name, str) else None
        if entry is None:
            refuse_name(name)
        assert self._lease is not None
        data = self._lease[entry.start : entry.stop]
        if self._framework in TORCH_FRAMEWORKS and entry.dtype in TORCH_DTYPES:
            return TorchTensor(self._source, entry, data, self._device, self._staged())
        return ForeignTensor(self._source, entry, data, self._framework, self._device)

    def get_tensor(self, name: str) -> Any:
        """The whole tensor."""
        return self.get_slice(name).whole()

    def get_tensors(self) -> dict[str, Any]:
        """Every tensor by name, in the order of their bytes."""
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def stream(self, plan: Plan) -> Iterator[tuple[str, Any]]:
        """(name, tensor) of what the plan wants, in the order of their bytes.

        Raises ValueError before the first for a plan that does not fit, OSError for bytes that
        cannot be brought.
        """
        parts = []
        for name, entry in self._opened().tensors.items():
            index = plan.index(name, entry.shape)
            if index is not None:
                parts.append((name, self.get_slice(name), index))
        if plan != Plan():
            self._source.want(span for _, one, index in parts for span in one.spans(index))
        staging = self._staged()
        if staging is not None:
            yield from pipelined(staging, parts)
        else:
            for name, one, index in parts:
                yield name, one[index] if index else one.whole()

    def _staged(self) -> Staging | None:
        """The staging for the device; None where tensors are views of the map, or simply copied."""
        if self._staging is None and self._device not in (None, "cpu"):
            device = device_for(self._device)
            self._staging = None if device is None else Staging(device)
        return self._staging

    def _opened(self) -> SafetensorsHeader:
        if self._header is None:
            raise SafetensorError("File is closed")
        return self._header
