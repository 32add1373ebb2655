"""Weights that can be used while they arrive.

`safe_open` and `load_file` take the places of safetensors' functions; `stream` goes through a
file in order. Files of the node's agent stream; for any other path the results are the stock
library's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from safetensors import SafetensorError

from hotplate.serving.streaming.reader import StreamedFile, read_header
from hotplate.serving.streaming.source import open_source
from hotplate.serving.streaming.stock import check_arguments, stock_safe_open

__all__ = ["load_file", "safe_open", "stream"]


class _Either(type):
    """Counts both kinds of opened files as instances."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (StreamedFile, stock_safe_open))


class safe_open(metaclass=_Either):
    """Open a Safetensors file lazily: a `StreamedFile` for the agent's, else the stock object.

    Arguments, results and errors are `safetensors.safe_open`'s; `options` are what the installed
    version takes (`backend`). Raises OSError if the file cannot be fetched.
    """

    def __new__(cls, filename: Any, framework: Any, device: Any = "cpu", **options: Any) -> Any:
        source = open_source(filename)
        if source is None:
            return stock_safe_open(filename, framework, device, **options)
        check_arguments(framework, device, options)
        try:
            header = read_header(source)
        except SafetensorError:
            # Ours is stricter in corners: the library has the last word, on the whole file.
            source.wait_linked()
            return stock_safe_open(filename, framework, device, **options)
        return StreamedFile(source, header, framework, device)


def load_file(
    filename: str | os.PathLike[str], device: str | int = "cpu", **options: Any
) -> dict[str, Any]:
    """`safetensors.torch.load_file`: all tensors by name, each one whole."""
    return dict(stream(filename, device, **options))


def stream(
    path: str | os.PathLike[str], device: str | int = "cpu", **options: Any
) -> Iterator[tuple[str, Any]]:
    """(name, `torch.Tensor`) in the order of the file, each as soon as its own bytes are there.

    Raises SafetensorError for a file that is not valid, OSError if its bytes cannot be had.
    """
    with safe_open(path, framework="pt", device=device, **options) as file:
        for name in file.offset_keys():
            yield name, file.get_tensor(name)
