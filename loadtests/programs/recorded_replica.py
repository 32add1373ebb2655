"""A stand-in for a replica that writes when each handler begins and ends, and answers as the
request's number says.

/operations/<number>    the handler takes its time and notices no caller that leaves
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import cast

import httptools
import uvloop

from loadtests.harness.accelerator import clock
from loadtests.history.operation import Operation
from loadtests.history.replica_file import ReplicaFile

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"


class Connection(asyncio.Protocol):
    """One caller's connection: one request at a time."""

    def __init__(self, file: ReplicaFile) -> None:
        self._file = file
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._body = b""
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._target = url
        self._body = b""

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        name = self._target.rpartition(b"/")[2]
        if not name.isdigit():  # a probe
            self._transport.write(ANSWER % (0, b""))
            return
        operation = Operation(int(name))
        self._file.begun(operation.number, clock())
        # A POST's answer is what has come, so that its client sees whether another's body came.
        answer = operation.answer if operation.may_run_twice else self._body
        self._loop.call_later(operation.work_s, self._finish, operation.number, answer)

    def _finish(self, number: int, answer: bytes) -> None:
        self._file.over(number, clock())
        if not self._transport.is_closing():
            self._transport.write(ANSWER % (len(answer), answer))


async def serve(slots: int, port: int, record: Path) -> None:
    file = ReplicaFile(record, slots)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(file), "127.0.0.1", port, backlog=2048, reuse_address=True
    )
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--record", type=Path, required=True)
    flags = parser.parse_args()
    uvloop.run(serve(flags.concurrency, flags.port, flags.record))
