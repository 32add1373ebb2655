"""Loads one Safetensors file to a GPU in one of several ways, times it, and compares every bit.

It prints `{}` when everything is imported and a small file has been loaded, begins when it reads a
line, and prints what it measured. `pinned` is the limit: as many bytes from pinned memory, with
nothing else done. Another run of this program, with `write`, makes the file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from hotplate.serving.weights import stream
from loadtests.harness.own_stdout import own_stdout

TENSOR_BYTES = 8 << 20
NORM_BYTES = 8 << 10
DEVICE = "cuda:0"
PINNED_BYTES = 1 << 30


def write(path: Path, layers: int) -> None:
    """A file of a large and a small tensor per layer."""
    tensors = {}
    for layer in range(layers):
        tensors[f"{layer:05}.weight"] = _content(layer, TENSOR_BYTES, "cpu")
        tensors[f"{layer:05}.norm"] = _content(layer, NORM_BYTES, "cpu")
    safetensors.torch.save_file(tensors, path)


def _content(layer: int, size_bytes: int, device: str) -> torch.Tensor:
    """Different bits for each layer, as bf16."""
    numbers = torch.arange(size_bytes // 2, dtype=torch.int32, device=device)
    return (numbers * 40503 + layer * 7919).to(torch.int16).view(torch.bfloat16)


def load_file(file: str) -> Iterable[tuple[str, Any]]:
    tensors: dict[str, Any] = safetensors.torch.load_file(file, device=DEVICE)
    return tensors.items()


def runai(file: str) -> Iterable[tuple[str, Any]]:
    with importlib.import_module("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_files([file])
        for name, tensor in streamer.get_tensors():
            yield name, tensor.to(DEVICE)


def fastsafetensors(file: str) -> Iterable[tuple[str, Any]]:
    opened = importlib.import_module("fastsafetensors").fastsafe_open
    tensors = opened(filenames=[file], nogds=True, device=DEVICE, debug_log=False)
    _open.append(tensors)  # keeps its memory, in any version, without a copy
    for name in tensors.keys():  # noqa: SIM118  (it is no dict)
        yield name, tensors.get_tensor(name)


def instanttensor(file: str) -> Iterable[tuple[str, Any]]:
    opened = importlib.import_module("instanttensor").safe_open
    with opened([file], framework="pt", device=0) as tensors:
        for name, tensor in tensors.tensors():
            yield name, tensor.clone()


def ours(file: str) -> Iterable[tuple[str, Any]]:
    """The file is streamed from the agent that the variables name."""
    return stream(file, DEVICE)


_open: list[Any] = []

WAYS: dict[str, Callable[[str], Iterable[tuple[str, Any]]]] = {
    "stream": ours,
    "load_file": load_file,
    "runai": runai,
    "fastsafetensors": fastsafetensors,
    "instanttensor": instanttensor,
}


def copy_pinned(size_bytes: int) -> float:
    """Seconds that as many bytes take out of pinned memory."""
    source = torch.empty(PINNED_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(size_bytes, dtype=torch.uint8, device=DEVICE)
    target[:PINNED_BYTES].copy_(source[:size_bytes])
    torch.cuda.synchronize()
    began = time.perf_counter()
    for start in range(0, size_bytes, PINNED_BYTES):
        part = target[start : start + PINNED_BYTES]
        part.copy_(source[: len(part)], non_blocking=True)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def load(way: str, file: str) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    tensors = dict(WAYS[way](file))
    torch.cuda.synchronize()
    return time.perf_counter() - began, tensors


def wrong_tensors(tensors: dict[str, Any], layers: int) -> int:
    """How many of the file's tensors are not there, or have a wrong bit."""
    wrong = 2 * layers - len(tensors)
    for name, tensor in tensors.items():
        layer, _, kind = name.partition(".")
        size_bytes = TENSOR_BYTES if kind == "weight" else NORM_BYTES
        right = _content(int(layer), size_bytes, DEVICE).view(torch.int16)
        wrong += not torch.equal(tensor.view(torch.int16), right)
    return wrong


def main() -> None:
    flags, output = _parser().parse_args(), own_stdout()
    if flags.way == "write":
        write(Path(flags.file), flags.layers)
        print("{}", file=output)
        return
    torch.empty(1, device=DEVICE)
    if flags.way != "pinned":
        load(flags.way, flags.small)
    print("{}", file=output)
    sys.stdin.readline()
    if flags.way == "pinned":
        result = {"seconds": copy_pinned(flags.layers * (TENSOR_BYTES + NORM_BYTES)), "wrong": 0}
    else:
        seconds, tensors = load(flags.way, flags.file)
        result = {"seconds": seconds, "wrong": wrong_tensors(tensors, flags.layers)}
    print(json.dumps(result), file=output)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=["write", "pinned", *WAYS])
    parser.add_argument("--file", required=True, help="path, for `stream` a URL")
    parser.add_argument("--small", help="another one, loaded before the clock runs")
    parser.add_argument("--layers", type=int, required=True, help="of the file")
    return parser


if __name__ == "__main__":
    main()
