"""Weights that can be used while they arrive.

`safe_open` and `load_file` take the places of safetensors' functions; `stream` goes through a
file in order. URLs and files of the node's agent stream; for any other path the results are the
stock library's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from safetensors import SafetensorError

from hotplate.serving.streaming.device import Device
from hotplate.serving.streaming.library import check_arguments, stock_safe_open
from hotplate.serving.streaming.reader import StreamedFile, read_header
from hotplate.serving.streaming.sharding import WHOLE, Part, Plan, Rule, shard
from hotplate.serving.streaming.source import open_source

__all__ = ["WHOLE", "Part", "Plan", "load_file", "safe_open", "shard", "stream"]


class _Either(type):
    """Counts both kinds of opened files as instances."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (StreamedFile, stock_safe_open))


class safe_open(metaclass=_Either):
    """Open a Safetensors file lazily: a `StreamedFile` for a URL or a file of the agent's, else
    the stock object.

    Arguments, results and errors are `safetensors.safe_open`'s; `options` are what the installed
    version takes (`backend`). Raises OSError if the file cannot be fetched.
    """

    def __new__(cls, filename: Any, framework: Any, device: Any = "cpu", **options: Any) -> Any:
        return _open(filename, framework, device, options, only_wanted=False)


def _open(
    filename: Any, framework: Any, device: Any, options: dict[str, Any], only_wanted: bool
) -> Any:
    source = open_source(filename, only_wanted)
    if source is None:
        return stock_safe_open(filename, framework, device, **options)
    check_arguments(framework, "cpu" if isinstance(device, Device) else device, options)
    try:
        header = read_header(source)
    except SafetensorError:
        # Ours is stricter in corners: the library has the last word, on the whole file.
        return stock_safe_open(source.whole(), framework, device, **options)
    return StreamedFile(source, header, framework, device)


def load_file(
    filename: str | os.PathLike[str], device: str | int = "cpu", **options: Any
) -> dict[str, Any]:
    """`safetensors.torch.load_file`: all tensors by name, each one whole."""
    return dict(stream(filename, device, **options))


def stream(
    source: str | os.PathLike[str],
    device: str | int | Device = "cpu",
    plan: Plan | Mapping[str, Rule] | None = None,
    **options: Any,
) -> Iterator[tuple[str, Any]]:
    """(name, `torch.Tensor`) in the order of the file, each as soon as its own bytes are there.

    `source` is a path or a URL. `plan` says what is wanted of which tensor, by default all: name
    or pattern → None to leave it out, `(dim, start, stop)` or `shard(dim, rank, world)` for a
    part; what it does not name comes whole. Of a URL no other bytes are fetched, but that chunks
    are whole. On a GPU, neighbouring small tensors share their memory, 32 MiB at most.

    Before the first tensor: raises SafetensorError for a file that is not valid, ValueError for a
    plan that does not fit it. Raises OSError if bytes cannot be had.
    """
    chosen = plan if isinstance(plan, Plan) else Plan(plan or {})
    only_wanted = chosen != Plan()
    with _open(source, "pt", device, options, only_wanted) as file:
        if isinstance(file, StreamedFile):
            yield from file.stream(chosen)
            return
        names = file.offset_keys()
        indexes = {name: chosen.index(name, file.get_slice(name).get_shape()) for name in names}
        for name in names:
            index = indexes[name]
            if index is not None:
                yield name, file.get_slice(name)[index] if index else file.get_tensor(name)
