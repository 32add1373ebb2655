"""Hostile callers in a process of their own: a flood, and slow ones of each kind."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event

AGAIN_S = 0.05
"""How long a flooding caller waits after an answer: it should fill the queue, not this machine."""


@dataclass(frozen=True)
class Targets:
    """The ports that they attack, all on this machine."""

    flooded_port: int
    gateway_port: int
    """The port of the deployment whose other callers should notice nothing."""
    api_port: int
    token: str
    download: str
    """The path of a large answer of the API, for the callers that do not read it."""
    flood: int
    """Connections of the flood."""
    slow: int
    """Callers of each slow kind at each port."""


@contextmanager
def attacking(targets: Targets) -> Iterator[Counter[str]]:
    """Attacks while the block runs. Yields how often each thing happened, which is filled in after
    the block."""
    spawn = multiprocessing.get_context("spawn")
    stop, results = spawn.Event(), spawn.SimpleQueue()
    process = spawn.Process(target=_main, args=(targets, stop, results), daemon=True)
    process.start()
    counts: Counter[str] = Counter()
    try:
        yield counts
    finally:
        stop.set()
        counts.update(results.get())
        process.join(10)
        process.kill()


def _main(targets: Targets, stop: Event, results: SimpleQueue[Counter[str]]) -> None:
    results.put(asyncio.run(_attack(targets, stop)))


async def _attack(targets: Targets, stop: Event) -> Counter[str]:
    counts: Counter[str] = Counter()
    flood = b"POST /cook HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    flood += b'Content-Length: 16\r\n\r\n{"seconds": 0.2}'
    token = f"X-YATAI-API-TOKEN: {targets.token}\r\n".encode()
    head = b"POST /api/v1/bento_repositories HTTP/1.1\r\nHost: a\r\n"
    body = b"Content-Type: application/json\r\nContent-Length: 9999\r\n\r\n{"
    stream = b"POST /stream HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    stream += b'Content-Length: 32\r\n\r\n{"pieces": 100, "pause_s": 0.01}'
    download = f"GET {targets.download} HTTP/1.1\r\nHost: a\r\n".encode() + token + b"\r\n"
    slow = {
        "slow head, gateway": (targets.gateway_port, head + b"X-Slow: "),
        "slow body, gateway": (targets.gateway_port, b"POST /echo HTTP/1.1\r\nHost: a\r\n" + body),
        "unread answer, gateway": (targets.flooded_port, stream),
        "slow head, API": (targets.api_port, head + b"X-Slow: "),
        "slow body, API": (targets.api_port, head + token + body),
        "unread answer, API": (targets.api_port, download),
    }
    calls = [_flooding(targets.flooded_port, flood, counts) for _ in range(targets.flood)]
    for kind, (port, data) in slow.items():
        calls += [_slow(kind, port, data, counts) for _ in range(targets.slow)]
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.to_thread(stop.wait)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return counts


async def _flooding(port: int, data: bytes, counts: Counter[str]) -> None:
    """Asks again and again, on one connection as long as it is kept."""
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                while True:
                    writer.write(data)
                    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                    length = answer.partition("content-length: ")[2].partition("\r\n")[0]
                    await reader.readexactly(int(length or 0))
                    counts[f"flood answered {answer.split()[1]}"] += 1
                    await asyncio.sleep(AGAIN_S)
            finally:
                writer.transport.abort()
        counts["flood connections ended"] += 1
        await asyncio.sleep(AGAIN_S)


async def _slow(kind: str, port: int, data: bytes, counts: Counter[str]) -> None:
    """Sends the data, and a byte a second if it is slow, and reads nothing, until its connection
    is ended; then it begins again."""
    dripping = b"x" if kind.startswith("slow") else b""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            counts[f"{kind}: connections"] += 1
            try:
                writer.write(data)
                while not reader.at_eof() and not writer.is_closing():
                    await asyncio.sleep(1)
                    writer.write(dripping)
            finally:
                writer.transport.abort()
            counts[f"{kind}: ended by the platform"] += 1
        await asyncio.sleep(AGAIN_S)
