"""The installed safetensors' own reader, even where its public name is patched.

Only it can tell whether arguments are valid, and make tensors of frameworks other than PyTorch, for
which it reads a file in memory with just the one tensor.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from safetensors._safetensors_rust import safe_open as stock_safe_open

from hotplate.serving.streaming.header import LENGTH_BYTES, TensorEntry

__all__ = ["check_arguments", "read_one", "stock_safe_open"]

_ONE = "tensor"


def check_arguments(framework: Any, device: Any, options: Mapping[str, Any]) -> None:
    """Raise what the installed safetensors raises for these arguments of `safe_open`."""
    with _memory_file({}, b"") as path:
        stock_safe_open(path, framework, device, **options)


def refuse_name(name: Any) -> NoReturn:
    """Raise what the installed safetensors raises for the name of a tensor that is not there."""
    with _memory_file({}, b"") as path, stock_safe_open(path, "np") as file:
        file.get_slice(name)
    raise AssertionError(f"a file without tensors has {name!r}")


@contextlib.contextmanager
def read_one(
    entry: TensorEntry, data: memoryview, framework: str, device: Any
) -> Iterator[tuple[Any, str]]:
    """The stock reader over a file with this one tensor, and the tensor's name in it."""
    info = {
        "dtype": entry.dtype,
        "shape": entry.shape,
        "data_offsets": [0, entry.stop - entry.start],
    }
    with _memory_file({_ONE: info}, data) as path, stock_safe_open(path, framework, device) as file:
        yield file, _ONE


@contextlib.contextmanager
def _memory_file(header: Mapping[str, Any], data: bytes | memoryview) -> Iterator[str]:
    text = json.dumps(header).encode()
    descriptor = os.memfd_create("safetensors")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(len(text).to_bytes(LENGTH_BYTES, "little"))
            file.write(text)
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
