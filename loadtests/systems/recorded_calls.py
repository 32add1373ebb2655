"""Numbered requests to a deployment of a whole platform; its replicas too write what they see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from loadtests.harness.child_process import module, running
from loadtests.history import files, operation, replica_file
from loadtests.history.observations import History, Run
from tests.support.end_to_end.rough_client import Bento
from tests.support.services.bentos import KITCHEN

SLOTS = 1
"""Of the bento's service."""
MOST = 10**9
"""More requests than are ever sent."""
ENDS_S = 90.0
"""How long the last requests may take."""
OPERATIONS = """
from pathlib import Path

from operation import Operation
from replica_file import ReplicaFile


class Operations:
    # An ASGI application whose answers and times are as its requests' numbers say.

    file = None

    async def __call__(self, scope, receive, send):
        if self.file is None:
            self.file = ReplicaFile(Path("RECORDS", f"{me()}.record"), SLOTS)
        operation = Operation(int(scope["path"].rpartition("/")[2]))
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.file.begun(operation.number, time.perf_counter())
        await asyncio.sleep(operation.work_s)
        # A POST's answer is what has come, so that its client sees whether another's body came.
        answer = operation.answer if operation.may_run_twice else body
        self.file.over(operation.number, time.perf_counter())
        length = (b"content-length", b"%d" % len(answer))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": answer})


@bentoml.asgi_app(Operations(), path="/operations")
"""
_SERVICE = "@bentoml.service("


def recorded(kitchen: Bento, records: Path) -> Bento:
    """The bento of `KITCHEN` whose service answers `/operations/<number>` too. Each process of a
    replica has a file in `records`."""
    application = OPERATIONS.replace("RECORDS", str(records)).replace("SLOTS", str(SLOTS))
    sources = {
        "src/service.py": KITCHEN.replace(_SERVICE, f"{application.lstrip()}{_SERVICE}"),
        "src/operation.py": Path(operation.__file__).read_text(),
        "src/replica_file.py": Path(replica_file.__file__).read_text(),
    }
    return kitchen.changed("recorded", sources)


@asynccontextmanager
async def recorded_calls(
    port: int, record: Path, *, clients: int, pause_s: float, repeats: int
) -> AsyncIterator[None]:
    """So many clients ask for the time of the block; what they see is in `record` afterwards."""
    command = module(
        "loadtests.programs.recorded_clients",
        *(port, "--first", 1, "--count", MOST, "--clients", clients, "--record", record),
        *("--pause", pause_s, "--repeats", repeats),
    )
    async with running(*command, log=record.with_suffix(".log"), grace_s=ENDS_S):
        yield


def history_of(record: Path, records: Path) -> History:
    """What clients and replicas have written."""
    sent, repeated, ended = files.client_observations(record)
    runs: list[Run] = []
    slots: dict[str, int] = {}
    for file in records.glob("*.record"):
        found, of_lives = files.runs(file, f"process {file.stem}")
        runs += found
        slots |= of_lives
    return History(sent, repeated, ended, runs, slots=slots)
