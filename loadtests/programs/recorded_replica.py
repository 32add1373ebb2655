"""A stand-in for a replica that writes when each handler begins and ends, and answers as the
request's number says.

/operations/<number>    the handler takes its time and notices no caller that leaves
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import uvloop

from loadtests.harness.accelerator import clock
from loadtests.harness.http_server import CallersConnection, serve
from loadtests.history.operation import Operation
from loadtests.history.replica_file import ReplicaFile


class Connection(CallersConnection):
    def __init__(self, file: ReplicaFile) -> None:
        super().__init__()
        self._file = file
        self._loop = asyncio.get_running_loop()

    def asked(self, target: bytes, body: bytes) -> None:
        name = target.rpartition(b"/")[2]
        if not name.isdigit():  # a probe
            self.answer(b"", b"text/plain")
            return
        operation = Operation(int(name))
        self._file.begun(operation.number, clock())
        # A POST's answer is what has come, so that its client sees whether another's body came.
        answer = operation.answer if operation.may_run_twice else body
        self._loop.call_later(operation.work_s, self._finish, operation.number, answer)

    def _finish(self, number: int, answer: bytes) -> None:
        self._file.over(number, clock())
        self.answer(answer, b"text/plain")


async def run(slots: int, port: int, record: Path) -> None:
    file = ReplicaFile(record, slots)
    await serve(lambda: Connection(file), port)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--record", type=Path, required=True)
    flags = parser.parse_args()
    uvloop.run(run(flags.concurrency, flags.port, flags.record))
