"""A stand-in for a replica: its handlers share one accelerator and never notice that callers leave.

/work/<seconds>             1 KiB after that much work; ?id=… is recorded when it begins
/tokens/<count>/<seconds>   a stream of events (SSE), one each so many seconds, each with the
                            moment at which it was sent
/stats                      how many handlers run, and what else `Stats` says
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import cast

import uvloop

from loadtests.harness.accelerator import Accelerator, Alarm, clock
from loadtests.harness.http_server import CallersConnection, serve

BODY = b'{"answer": "%s"}' % (b"x" * (1024 - 14))
JSON = b"application/json"
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


class Connection(CallersConnection):
    def __init__(self, handlers: Handlers) -> None:
        super().__init__()
        self._handlers = handlers

    def asked(self, target: bytes, body: bytes) -> None:
        path, _, query = target.partition(b"?")
        _, what, *values = path.split(b"/")
        handlers = self._handlers
        if what == b"work":
            if query:
                handlers.record(query.removeprefix(b"id="))
            handlers.accelerator.begin(float(values[0]), partial(self.answer, BODY, JSON))
        elif what == b"tokens":
            handlers.accelerator.enter()
            self.send(STREAM)
            handlers.streams.begin(self, int(values[0]), float(values[1]))
        else:
            self.answer(json.dumps(asdict(handlers.accelerator.stats())).encode(), JSON)

    def send_event(self, *, last: bool) -> None:
        event = EVENT % clock()
        end = b"0\r\n\r\n" if last else b""
        self.send(b"%x\r\n%b\r\n%b" % (len(event), event, end))
        if last:
            self._handlers.accelerator.leave()


def recorder(path: str) -> Callable[[bytes], None]:
    """Appends each line at once, so that it is kept even if the process is killed right after."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return lambda line: cast("None", os.write(file, line + b"\n"))


async def run(concurrency: int, port: int, record: str) -> None:
    handlers = Handlers(concurrency, recorder(record))
    await serve(lambda: Connection(handlers), port)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", required=True, help="file for the ids of what begins")
    flags = parser.parse_args()
    uvloop.run(run(flags.concurrency, flags.port, flags.record))
