"""What observers write is read again, also what a killed one has left."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.history import files
from loadtests.history.observations import Ended, Passed, Repeated, Run, Sent
from loadtests.history.operation import LONGEST_BODY_BYTES, Operation, number_in
from loadtests.history.replica_file import ReplicaFile

LINE = "70.500000 bench 127.0.0.1 {} GET /operations/{} {} 9 0.250 0.300 {}\n"


def test_a_clients_file(tmp_path: Path) -> None:
    with files.ClientFile(tmp_path / "client") as file:
        file.sent(7, 1.25)
        file.sent(8, 1.5)
        file.repeated(8, 1.75)
        file.ended(8, 2.0, "refused")
        file.ended(7, 2.5, "answered", 7)
    sent, repeated, ended = files.client_observations(tmp_path / "client")
    assert sent == [
        Sent(7, 1.25, False, Operation(7).order),
        Sent(8, 1.5, True, Operation(8).order),
    ]
    assert repeated == [Repeated(8, 1.75)]
    assert ended == [Ended(8, 2.0, "refused"), Ended(7, 2.5, "answered", 7)]


def test_what_a_killed_replica_has_not_ended_and_its_next_life(tmp_path: Path) -> None:
    record = tmp_path / "replica"
    first = ReplicaFile(record, 2)
    first.begun(1, 1.0)
    first.begun(2, 1.5)
    first.over(1, 2.0)
    with record.open("a") as file:
        file.write("begun 3")  # killed within a line
    second = ReplicaFile(record, 3)
    second.begun(2, 5.0)
    second.over(2, 6.0)
    second.begun(4, 7.0)
    runs, slots = files.runs(record, "h:1")
    assert slots == {"h:1, life 1": 2, "h:1, life 2": 3}
    assert runs == [
        Run(1, "h:1, life 1", 1.0, 2.0),
        Run(2, "h:1, life 1", 1.5, None),
        Run(2, "h:1, life 2", 5.0, 6.0),
        Run(4, "h:1, life 2", 7.0, None),
    ]


def test_of_an_access_log_the_lines_of_own_replicas_answers(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text(
        LINE.format(5, 5, 200, "h:1")
        + LINE.format(6, 6, 200, "another-gateway")
        + LINE.format(7, 7, 503, "h:1")
        + LINE.format("-", 8, 200, "h:1")
        + LINE.format(9, 9, 200, "h:1")[:-20]
    )
    (one,) = files.passed(log, "g1", ["h:1"])
    assert one == Passed(5, "g1", 70.5, 0.25, 0.3)
    assert files.passed(tmp_path / "none", "g1", ["h:1"]) == []


@pytest.mark.parametrize("number", [1, 2, 61, 86, 999_999, 1_000_000])
def test_an_answer_tells_its_operation(number: int) -> None:
    operation = Operation(number)
    assert number_in(operation.answer) == number
    assert number_in(operation.answer + b"x") is None
    assert number_in(b"") is None
    assert len(operation.body) <= LONGEST_BODY_BYTES + 10
    assert bool(operation.body) != operation.may_run_twice
