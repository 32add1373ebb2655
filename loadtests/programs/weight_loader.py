"""Loads weights into memory that is already allocated, once, in one of several ways, and times it.

The memory stands for a GPU's: every tensor is copied into it. `transfer` only receives the
bytes, and checks their digests with `--verify`; `stream` and `load` are ours, through the node's
agent; `runai` reads an S3 bucket itself; a way called `A-B` fetches the whole file with A, then
loads it with B. It prints `{}` when it is ready, begins when it reads a line, and prints what it
measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import SplitResult, urlsplit

import torch
from blake3 import blake3

CHUNK_BYTES = 8 << 20


class Destination:
    """`size_bytes` of memory, allocated and touched."""

    def __init__(self, size_bytes: int) -> None:
        # As a GPU's copy engine does: between two copies torch's threads spin, on all cores.
        torch.set_num_threads(1)
        self._bytes = torch.zeros(size_bytes, dtype=torch.uint8)
        self._filled = 0
        self._places: dict[str, slice] = {}

    def fill(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copies the bytes of named tensors there, one after another."""
        for name, tensor in tensors:
            flat = tensor.reshape(-1).view(torch.uint8)
            place = self._places[name] = slice(self._filled, self._filled + len(flat))
            self._bytes[place].copy_(flat)
            self._filled = place.stop

    @property
    def memory(self) -> memoryview:
        return memoryview(self._bytes.numpy().data)

    @property
    def digest(self) -> str:
        """Of all tensors by name, in whatever order they came."""
        memory, whole = self.memory, blake3()
        for name, place in sorted(self._places.items()):
            whole.update(name.encode()).update(memory[place])
        return whole.hexdigest()


Load = Callable[[argparse.Namespace, Destination], None]


def transfer(flags: argparse.Namespace, destination: Destination) -> None:
    """Receives the tensors over `--connections` connections, a part over each."""
    where, memory = urlsplit(flags.url), destination.memory
    step = -(-len(memory) // flags.connections)
    parts = [memory[start : start + step] for start in range(0, len(memory), step)]
    threads = [
        Thread(target=_receive, args=(where, flags.skip + number * step, part, flags.verify))
        for number, part in enumerate(parts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _receive(where: SplitResult, start: int, memory: memoryview, verify: bool) -> None:
    with socket.create_connection((where.hostname or "", where.port or 80)) as connection:
        span = f"bytes={start}-{start + len(memory) - 1}"
        head = f"GET {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nRange: {span}\r\n\r\n"
        connection.sendall(head.encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += connection.recv(1) or sys.exit("the answer has no head")
        for at in range(0, len(memory), CHUNK_BYTES):
            chunk = memory[at : at + CHUNK_BYTES]
            if connection.recv_into(chunk, 0, socket.MSG_WAITALL) < len(chunk):
                sys.exit("the answer is too short")
            if verify:
                blake3(chunk).digest()


def stream(flags: argparse.Namespace, destination: Destination) -> None:
    from hotplate.serving import weights

    destination.fill(weights.stream(flags.url))


def load(flags: argparse.Namespace, destination: Destination) -> None:
    from hotplate.serving import weights

    destination.fill(weights.load_file(flags.url).items())


def runai(flags: argparse.Namespace, destination: Destination) -> None:
    with import_module("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_files([flags.url])
        destination.fill(streamer.get_tensors())


def _fsspec(flags: argparse.Namespace) -> None:
    import fsspec

    filesystem, path = fsspec.url_to_fs(flags.url)
    filesystem.get_file(path, flags.file)


def _aiohttp(flags: argparse.Namespace) -> None:
    asyncio.run(_fetch(flags.url, flags.file, flags.skip + flags.size, flags.connections))


async def _fetch(url: str, file: Path, size_bytes: int, connections: int) -> None:
    """What one writes with aiohttp: ranges over a few connections, each written as it comes."""
    import aiohttp

    starts = iter(range(0, size_bytes, CHUNK_BYTES))

    async def fetch_ranges(session: aiohttp.ClientSession, fd: int) -> None:
        for start in starts:
            span = {"Range": f"bytes={start}-{min(start + CHUNK_BYTES, size_bytes) - 1}"}
            async with session.get(url, headers=span) as answer:
                async for piece in answer.content.iter_any():
                    os.pwrite(fd, piece, start)
                    start += len(piece)

    fd = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(fetch_ranges(session, fd) for _ in range(connections)))
    finally:
        os.close(fd)


def _load_file(flags: argparse.Namespace, destination: Destination) -> None:
    import safetensors.torch

    destination.fill(safetensors.torch.load_file(flags.file).items())


def _fastsafetensors(flags: argparse.Namespace, destination: Destination) -> None:
    library = import_module("fastsafetensors")
    loader = library.SafeTensorsFileLoader(library.SingleGroup(), torch.device("cpu"), nogds=True)
    loader.add_filenames({0: [str(flags.file)]})
    buffer = loader.copy_files_to_device()
    destination.fill((name, buffer.get_tensor(name)) for name in buffer.key_to_rank_lidx)
    buffer.close()
    loader.close()


def _fetch_then(fetch: Callable[[argparse.Namespace], None], load: Load) -> Load:
    def both(flags: argparse.Namespace, destination: Destination) -> None:
        fetch(flags)
        load(flags, destination)

    return both


WAYS: dict[str, Load] = {
    "transfer": transfer,
    "stream": stream,
    "load": load,
    "runai": runai,
    "fsspec-load_file": _fetch_then(_fsspec, _load_file),
    "aiohttp-load_file": _fetch_then(_aiohttp, _load_file),
    "aiohttp-fastsafetensors": _fetch_then(_aiohttp, _fastsafetensors),
}
_IMPORTS: dict[str, tuple[str, ...]] = {
    "stream": ("hotplate.serving.weights", "hotplate.cache.reader"),
    "load": ("hotplate.serving.weights", "hotplate.cache.reader"),
    "runai": ("runai_model_streamer",),
    "fsspec-load_file": ("safetensors.torch", "aiohttp", "fsspec.implementations.http"),
    "aiohttp-load_file": ("safetensors.torch", "aiohttp"),
    "aiohttp-fastsafetensors": ("fastsafetensors", "aiohttp"),
}


def main() -> None:
    flags = _parser().parse_args()
    for name in _IMPORTS.get(flags.way, ()):
        import_module(name)
    destination = Destination(flags.size)
    print("{}", flush=True)
    sys.stdin.readline()
    before_s, began = _cpu_s(), time.perf_counter()
    WAYS[flags.way](flags, destination)
    seconds, cpu_s = time.perf_counter() - began, _cpu_s() - before_s
    result: dict[str, Any] = {"seconds": seconds, "cpu_s": cpu_s, "digest": destination.digest}
    print(json.dumps(result), flush=True)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--url", required=True, help="of the file")
    parser.add_argument("--size", type=int, required=True, help="bytes of all tensors")
    parser.add_argument("--skip", type=int, required=True, help="bytes before the first of them")
    parser.add_argument("--file", type=Path, required=True, help="where a whole file is put")
    parser.add_argument("--connections", type=int, default=1, help="of a transfer, and of aiohttp")
    parser.add_argument("--verify", action="store_true", help="check the digests of a transfer")
    return parser


if __name__ == "__main__":
    main()
