"""Connections that were used once and are kept: open until the process is told to end.

It prints `{"open": N}` when all have had their answer, and again for each line that it reads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import urllib.parse
from functools import partial
from typing import cast

import uvloop

AT_ONCE = 100


class Idle(asyncio.Protocol):
    """One connection: one request, one answer, then nothing."""

    def __init__(self, request: bytes, answered: asyncio.Future[None], open_: set[Idle]) -> None:
        self._request = request
        self._answered = answered
        self._open = open_
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._open.add(self)
        # uvloop's transports are no subclasses of asyncio's.
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if end and len(body) >= int(length):
            self._answer = b""
            self._answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        if not self._answered.done():
            self._answered.set_result(None)


async def run(url: str, count: int) -> None:
    loop = asyncio.get_running_loop()
    where = urllib.parse.urlsplit(url)
    request = f"GET {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
    connections: set[Idle] = set()

    async def open_some(number: int) -> None:
        for _ in range(number):
            answered = loop.create_future()
            await loop.create_connection(
                partial(Idle, request, answered, connections),
                where.hostname or "",
                where.port or 80,
            )
            await answered

    await asyncio.gather(
        *(open_some(len(range(first, count, AT_ONCE))) for first in range(AT_ONCE))
    )
    while True:
        print(json.dumps({"open": len(connections)}), flush=True)
        if not await loop.run_in_executor(None, sys.stdin.readline):
            return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--count", type=int, required=True)
    flags = parser.parse_args()
    uvloop.run(run(flags.url, flags.count))
