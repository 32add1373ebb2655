"""Reads files as a program that does not know the agent, and times it.

    python -m loadtests.programs.view_reader read|mmap|load ROUNDS PATH…

It prints `{}` when it is ready, begins when it reads a line, and prints how many seconds each path
took, round by round; the paths take turns. `load` is safetensors' own `load_file` for torch, every
tensor copied in file order into memory that was touched before; imports are not counted.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time

import numpy

BLOCK_BYTES = 8 << 20
PAGE_BYTES = 4096


def read(path: str, memory: memoryview) -> None:
    fd = os.open(path, os.O_RDONLY)
    at = 0
    while count := os.preadv(fd, [memory[:BLOCK_BYTES]], at):
        at += count
    os.close(fd)


def read_mapped(path: str, memory: memoryview) -> None:
    """Touches every page once."""
    fd = os.open(path, os.O_RDONLY)
    mapped = mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
    numpy.frombuffer(mapped, dtype=numpy.uint8)[::PAGE_BYTES].sum()
    os.close(fd)


def load(path: str, memory: memoryview) -> None:
    import torch
    from safetensors.torch import load_file

    torch.set_num_threads(1)  # more would spin between two copies, on the cores of the file view
    target = torch.frombuffer(memory, dtype=torch.uint8)
    at = 0
    for tensor in sorted(load_file(path).values(), key=torch.Tensor.data_ptr):
        flat = tensor.reshape(-1).view(torch.uint8)
        target[at : at + len(flat)].copy_(flat)
        at += len(flat)


WAYS = {"read": read, "mmap": read_mapped, "load": load}


def main(way: str, rounds: str, *paths: str) -> None:
    size_bytes = max(BLOCK_BYTES, os.path.getsize(paths[0]) if way == "load" else 0)
    memory = memoryview(bytearray(size_bytes))
    if way == "load":
        import safetensors.torch  # noqa: F401  # it takes longer than the file
    print("{}", flush=True)
    sys.stdin.readline()
    seconds: list[list[float]] = []
    for _ in range(int(rounds)):
        seconds.append([])
        for path in paths:
            began = time.perf_counter()
            WAYS[way](path, memory)
            seconds[-1].append(time.perf_counter() - began)
    print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
