"""A stand-in for a replica: its handlers share one accelerator and never notice that callers leave.

/work/<seconds>             1 KiB after that much work; ?id=… is recorded when it begins
/tokens/<count>/<seconds>   a stream of events (SSE), one each so many seconds, each with the
                            moment at which it was sent
/stats                      how many handlers run, and what else `Stats` says
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import cast

import httptools
import uvloop

from loadtests.harness.accelerator import Accelerator, Alarm, clock

BODY = b'{"answer": "%s"}' % (b"x" * (1024 - 14))
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
EVENT = b'data: {"at": %.6f, "token": "about as long as an event with one token in it is"}\n\n'
TICK_S = 0.001
"""What is due within it is sent at once: a timer for each event would cost more than the event."""


class Streams:
    """Sends what is due on all streams."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, float, int, Connection]] = []
        self._alarm = Alarm(self._send_due)
        self._begun = 0

    def begin(self, connection: Connection, count: int, every_s: float) -> None:
        self._begun += 1
        heapq.heappush(self._due, (clock() + every_s, self._begun, every_s, count, connection))
        if self._due[0][1] == self._begun:
            self._alarm.set(every_s)

    def _send_due(self) -> None:
        while self._due and self._due[0][0] <= clock():
            at, number, every_s, left, connection = self._due[0]
            connection.send_event(last=left == 1)
            if left == 1:
                heapq.heappop(self._due)
            else:
                following = (at + every_s, number, every_s, left - 1, connection)
                heapq.heapreplace(self._due, following)
        if self._due:
            self._alarm.set(max(TICK_S, self._due[0][0] - clock()))


class Handlers:
    """What all connections share."""

    def __init__(self, concurrency: int, record: Callable[[bytes], None]) -> None:
        self.accelerator = Accelerator(concurrency)
        self.streams = Streams()
        self.record = record


class Connection(asyncio.Protocol):
    """One caller's connection: one request at a time."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._target = url

    def on_message_complete(self) -> None:
        path, _, query = self._target.partition(b"?")
        _, what, *values = path.split(b"/")
        handlers = self._handlers
        if what == b"work":
            if query:
                handlers.record(query.removeprefix(b"id="))
            handlers.accelerator.begin(float(values[0]), partial(self._send, BODY))
        elif what == b"tokens":
            handlers.accelerator.enter()
            self._write(STREAM)
            handlers.streams.begin(self, int(values[0]), float(values[1]))
        else:
            self._send(json.dumps(asdict(handlers.accelerator.stats())).encode())

    def send_event(self, *, last: bool) -> None:
        event = EVENT % clock()
        end = b"0\r\n\r\n" if last else b""
        self._write(b"%x\r\n%b\r\n%b" % (len(event), event, end))
        if last:
            self._handlers.accelerator.leave()

    def _send(self, body: bytes) -> None:
        self._write(ANSWER % (len(body), body))

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


def recorder(path: str) -> Callable[[bytes], None]:
    """Appends each line at once, so that it is kept even if the process is killed right after."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return lambda line: cast("None", os.write(file, line + b"\n"))


async def serve(concurrency: int, port: int, record: str) -> None:
    loop = asyncio.get_running_loop()
    handlers = Handlers(concurrency, recorder(record))
    server = await loop.create_server(
        lambda: Connection(handlers), "127.0.0.1", port, backlog=2048, reuse_address=True
    )
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", required=True, help="file for the ids of what begins")
    flags = parser.parse_args()
    uvloop.run(serve(flags.concurrency, flags.port, flags.record))
