"""Loads weights into memory that is there already, once, in one of three ways, and times it.

`transfer` only receives the bytes, `stream` copies each tensor while later ones arrive through
the node's agent, `fetch` has fsspec bring the whole file, then loads it with safetensors. The
memory stands for a GPU's: every tensor is copied into it. Says `{}` when it is ready, begins when
a line comes in, and says what it measured.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import resource
import sys
import time
import urllib.parse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import blake3
import fsspec
import safetensors.torch
import torch

from hotplate.cache.client import AgentClient
from hotplate.serving.streaming.source import AGENT_SOCKET, TREES
from hotplate.serving.weights import stream
from loadtests.published_model import FILE


class Destination:
    """`size_bytes` of memory, allocated and touched."""

    def __init__(self, size_bytes: int) -> None:
        self._bytes = torch.zeros(size_bytes, dtype=torch.uint8)
        self._filled = 0

    def fill(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            flat = tensor.reshape(-1).view(torch.uint8)
            self._bytes[self._filled : self._filled + len(flat)].copy_(flat)
            self._filled += len(flat)

    @property
    def memory(self) -> memoryview:
        return memoryview(self._bytes.numpy().data)

    @property
    def digest(self) -> str:
        return str(blake3.blake3(self.memory).hexdigest())


def transfer(flags: argparse.Namespace, destination: Destination) -> None:
    """Receives the file over one connection, with nothing done to it."""
    where = urllib.parse.urlsplit(flags.blob)
    connection = http.client.HTTPConnection(where.hostname or "", where.port)
    connection.request("GET", where.path)
    answer = connection.getresponse()
    answer.read(answer.length - len(destination.memory) if answer.length else 0)
    received, memory = 0, destination.memory
    while count := answer.readinto(memory[received : received + (1 << 20)]):
        received += count


def stream_from_agent(flags: argparse.Namespace, destination: Destination) -> None:
    root = asyncio.run(_bring(flags.agent, flags.manifest))
    os.environ |= {TREES: str(Path(root).parent), AGENT_SOCKET: flags.socket}
    destination.fill(tensor for _, tensor in stream(Path(root) / FILE))


async def _bring(agent: str, manifest: str) -> str:
    client = AgentClient(agent)
    try:
        return (await client.tree(manifest)).root
    finally:
        await client.close()


def fetch_then_load(flags: argparse.Namespace, destination: Destination) -> None:
    filesystem, path = fsspec.url_to_fs(flags.blob)
    filesystem.get_file(path, flags.file)
    tensors: dict[str, Any] = safetensors.torch.load_file(flags.file)
    destination.fill(tensors[name] for name in sorted(tensors))


WAYS = {"transfer": transfer, "stream": stream_from_agent, "fetch": fetch_then_load}


def main() -> None:
    flags = _parser().parse_args()
    destination = Destination(flags.size)
    print("{}", flush=True)
    sys.stdin.readline()
    before_s, began = _cpu_s(), time.perf_counter()
    WAYS[flags.way](flags, destination)
    seconds, cpu_s = time.perf_counter() - began, _cpu_s() - before_s
    said = {"seconds": seconds, "cpu_s": cpu_s, "digest": destination.digest}
    print(json.dumps(said), flush=True)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--size", type=int, required=True, help="bytes of all tensors")
    parser.add_argument("--blob", required=True, help="URL of the file")
    parser.add_argument("--file", type=Path, required=True, help="where `fetch` puts it")
    parser.add_argument("--manifest", help="digest")
    parser.add_argument("--agent", help="URL")
    parser.add_argument("--socket", help="the agent's")
    return parser


if __name__ == "__main__":
    main()
