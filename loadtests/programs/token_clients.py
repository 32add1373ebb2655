"""Readers of streams: they note for each event how long ago it was sent.

They print what they saw after `--seconds`: events, streams that broke, and the delays' percentiles.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import urllib.parse
from functools import partial
from typing import cast

import uvloop

from loadtests.harness.accelerator import clock

SENT_AT = re.compile(rb'"at": ([0-9.]+),')
APART_S = 0.0011
"""The pause between the starts of streams, so that their events do not all come at one moment."""
SETTLE_S = 1.0


class Reader(asyncio.Protocol):
    def __init__(self, request: bytes, seen: Seen) -> None:
        self._request = request
        self._seen = seen

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        now = clock()
        if now >= self._seen.from_:
            self._seen.delays_s += [now - float(at) for at in SENT_AT.findall(data)]

    def connection_lost(self, exc: Exception | None) -> None:
        self._seen.broken += 1


class Seen:
    """What all readers saw, from a moment on."""

    def __init__(self) -> None:
        self.from_ = float("inf")
        self.delays_s: list[float] = []
        self.broken = 0


async def run(url: str, streams: int, every_s: float, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    where = urllib.parse.urlsplit(url)
    count = round((seconds + SETTLE_S + 10) / every_s)
    request = f"GET /tokens/{count}/{every_s} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
    seen = Seen()
    for _ in range(streams):
        await loop.create_connection(
            partial(Reader, request, seen), where.hostname or "", where.port or 80
        )
        await asyncio.sleep(APART_S)
    await asyncio.sleep(SETTLE_S)
    seen.from_ = clock()
    await asyncio.sleep(seconds)
    found = seen.delays_s
    cuts = statistics.quantiles(found, n=100) if len(found) > 1 else [0.0] * 99
    counts = {"events": len(found), "broken": seen.broken}
    print(json.dumps({**counts, "p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--every", type=float, required=True, help="seconds between events")
    parser.add_argument("--seconds", type=float, required=True)
    flags = parser.parse_args()
    uvloop.run(run(flags.url, flags.streams, flags.every, flags.seconds))
