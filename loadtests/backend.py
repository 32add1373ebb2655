"""A stand-in for a replica: handlers that share one accelerator and never notice who has left.

`POST /work/<seconds>` answers 1 KiB after that much work; `GET /stats` says how many handlers
run, and how many did at most. Up to `--concurrency` handlers run at full speed; more slow each
other down in proportion (processor sharing), as they do on a GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import json
import time
from collections.abc import Callable
from typing import cast

import httptools
import uvloop

BODY = b'{"answer": "%s"}' % (b"x" * (1024 - 14))
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


class Accelerator:
    """Runs work, at a speed that depends on how much of it there is."""

    def __init__(self, concurrency: int) -> None:
        self.running = self.most = self.ended = 0
        self._concurrency = concurrency
        self._loop = asyncio.get_running_loop()
        self._done_s = 0.0
        """Seconds of work that each of the running ones has got since the beginning."""
        self._since = time.perf_counter()
        self._ends: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, work_s: float, done: Callable[[], None]) -> None:
        """Call `done` when `work_s` seconds of work have been done."""
        self._advance()
        self.running += 1
        self.most = max(self.most, self.running)
        heapq.heappush(self._ends, (self._done_s + work_s, next(self._serial), done))
        self._finish()

    def _advance(self) -> None:
        now = time.perf_counter()  # uvloop's own time is in whole milliseconds
        self._done_s += (now - self._since) * self._speed
        self._since = now

    @property
    def _speed(self) -> float:
        return min(1.0, self._concurrency / max(1, self.running))

    def _finish(self) -> None:
        """End what is done, and come back when the next one will be."""
        self._advance()
        while self._ends and self._ends[0][0] <= self._done_s + 1e-9:
            _, _, done = heapq.heappop(self._ends)
            self.running -= 1
            self.ended += 1
            done()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ends:
            wait_s = (self._ends[0][0] - self._done_s) / self._speed
            self._timer = self._loop.call_later(max(0.001, wait_s), self._finish)


class Connection(asyncio.Protocol):
    """One caller's connection: one request at a time."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_message_complete(self) -> None:
        if self._path.startswith(b"/work/"):
            self._accelerator.begin(float(self._path[6:]), self._answer)
        else:
            names = ("running", "most", "ended")
            self._send(json.dumps({n: getattr(self._accelerator, n) for n in names}).encode())

    def _answer(self) -> None:
        self._send(BODY)

    def _send(self, body: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(ANSWER % (len(body), body))


async def serve(concurrency: int) -> None:
    loop = asyncio.get_running_loop()
    accelerator = Accelerator(concurrency)
    server = await loop.create_server(lambda: Connection(accelerator), "127.0.0.1", backlog=2048)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int, required=True)
    uvloop.run(serve(parser.parse_args().concurrency))
