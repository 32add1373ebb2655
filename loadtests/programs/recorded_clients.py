"""Closed-loop clients that write when each of their requests was sent and how it ended.

Some have little patience and some leave, as their requests' numbers say. A request that may run
twice is sent again, if the flags say so, when its connection has ended or cannot be made; no other
one is. The clients end when all numbers are used, or, each with its last request, at SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httptools
import uvloop

from loadtests.harness.accelerator import clock
from loadtests.harness.route_plan import ORGANIZATION
from loadtests.history.files import ClientFile
from loadtests.history.observations import Outcome
from loadtests.history.operation import Operation, number_in

SILENT_S = 60.0
"""A request that has no end by then is called silent."""
AFTER_REFUSAL_S = 0.02
AFTER_FAILURE_S = 0.05
NOT_TRIED = (429, 503)


@dataclass(frozen=True)
class Manner:
    """How a client asks."""

    pause_s: float
    """From an answer to the next request."""
    repeats: int
    """How often it repeats a request that may run twice."""


class Client(asyncio.Protocol):
    """One client: one request at a time, over a connection that is kept as long as possible."""

    def __init__(self, port: int, numbers: Iterator[int], manner: Manner, file: ClientFile) -> None:
        self._port = port
        self._numbers = numbers
        self._manner = manner
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser
        self._operation: Operation | None = None
        """The request that has no end yet."""
        self._last = 0
        self._body: list[bytes] = []
        self._limit: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._repeated = 0
        self._again: asyncio.TimerHandle | None = None
        self.done = self._loop.create_future()

    def begin(self) -> None:
        """Sends the next request, if there is one."""
        number = next(self._numbers, None)
        if number is None:
            self._drop()
            self.done.set_result(None)
            return
        operation = self._operation = Operation(number)
        self._last = number
        self._repeated = 0
        self._file.sent(number, clock())
        if operation.leaves_after_s is None:
            self._limit = self._loop.call_later(SILENT_S, self._give_up, "silent")
        else:
            self._limit = self._loop.call_later(operation.leaves_after_s, self._give_up, "left")
        if self._transport is None:
            self._connect()
        else:
            self._send(operation)

    def _connect(self) -> None:
        self._connecting = self._loop.create_task(self._connected())

    async def _connected(self) -> None:
        try:
            await self._loop.create_connection(lambda: self, "127.0.0.1", self._port)
        except OSError:
            self._cut()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class
        self._parser = httptools.HttpResponseParser(self)
        if self._operation is None:  # it has left meanwhile
            self._drop()
        else:
            self._send(self._operation)

    def _send(self, operation: Operation) -> None:
        assert self._transport is not None
        body = operation.body
        lines = [
            f"{operation.method} /operations/{operation.number} HTTP/1.1",
            "Host: 127.0.0.1",
            f"X-Request-Id: {operation.number}",
            f"{ORGANIZATION}: {operation.organization}",
        ]
        if operation.timeout_s is not None:
            lines.append(f"X-Request-Timeout-Seconds: {operation.timeout_s}")
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self._transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def data_received(self, data: bytes) -> None:
        if self._operation is None:
            self._surplus()
        else:
            self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self._operation is None:  # two answers at once
            self._surplus()
            return
        status, body = self._parser.get_status_code(), b"".join(self._body)
        if not self._parser.should_keep_alive():
            self._drop()
        if status == 200:
            self._end("answered", self._manner.pause_s, number_in(body))
        else:
            self._end("refused" if status in NOT_TRIED else "failed", AFTER_REFUSAL_S)

    def _surplus(self) -> None:
        """What comes on a connection that awaits nothing is a second end of the last request."""
        self._file.ended(self._last, clock(), "answered")
        self._drop()

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            if self._operation is not None:
                self._cut()

    def _cut(self) -> None:
        """The connection has ended without an answer."""
        operation = self._operation
        assert operation is not None, "only what has no end is cut"
        if operation.may_run_twice and self._repeated < self._manner.repeats:
            self._repeated += 1
            self._file.repeated(operation.number, clock())
            self._body.clear()
            self._again = self._loop.call_later(AFTER_FAILURE_S, self._connect)
        else:
            self._end("cut", AFTER_FAILURE_S)

    def _give_up(self, outcome: Outcome) -> None:
        self._drop()
        self._end(outcome, 0.0)

    def _end(self, outcome: Outcome, pause_s: float, answer_of: int | None = None) -> None:
        assert self._operation is not None, "one request has one end"
        assert self._limit is not None
        self._file.ended(self._operation.number, clock(), outcome, answer_of)
        self._limit.cancel()
        if self._again is not None:
            self._again.cancel()
        self._operation = None
        self._body.clear()
        self._loop.call_later(pause_s, self.begin) if pause_s else self._loop.call_soon(self.begin)

    def _drop(self) -> None:
        """Ends the connection; what happens on it no longer counts."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        elif self._connecting is not None:
            self._connecting.cancel()


async def run(port: int, numbers: range, count: int, manner: Manner, record: Path) -> None:
    left = (number for number in numbers)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, left.close)
    with ClientFile(record) as file:
        clients = [Client(port, left, manner, file) for _ in range(count)]
        for client in clients:
            client.begin()
        await asyncio.gather(*(client.done for client in clients))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--first", type=int, required=True, help="the first request's number")
    parser.add_argument("--count", type=int, required=True, help="requests")
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each answer (0)")
    parser.add_argument("--repeats", type=int, default=0, help="of what may run twice (0)")
    parser.add_argument("--record", type=Path, required=True)
    flags = parser.parse_args()
    numbers = range(flags.first, flags.first + flags.count)
    manner = Manner(flags.pause, flags.repeats)
    uvloop.run(run(flags.port, numbers, flags.clients, manner, flags.record))
