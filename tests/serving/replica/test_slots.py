from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hotplate.serving.replica.inside import methods
from hotplate.serving.replica.slots import LABEL, LEARNT, SET, THREADS, slots, workers

SYNC = {"concurrency": None, "learns": "", "batch": 0, "only_tasks": False}
ASYNC = {**SYNC, "learns": "async methods"}
TASKS = {**SYNC, "only_tasks": True}
OF_BENTOML = {"traffic": {"external_queue": True, "concurrency": 1}}
"""What BentoML writes for tasks."""


@pytest.mark.parametrize(
    ("config", "reported", "expected"),
    [
        pytest.param({}, SYNC, (1, THREADS), id="sync methods"),
        pytest.param({"threads": 4}, SYNC, (4, THREADS), id="threads"),
        pytest.param({"workers": 2, "threads": 4}, SYNC, (8, THREADS), id="workers x threads"),
        pytest.param({"threads": 4}, ASYNC, (32, LEARNT), id="async methods"),
        pytest.param({"threads": 4}, None, (32, LEARNT), id="nobody knows yet"),
        pytest.param(
            {"traffic": {"concurrency": 3}}, None, (3, SET), id="written, not reported yet"
        ),
        pytest.param(
            {"traffic": {"concurrency": 3}, "threads": 4},
            {**ASYNC, "concurrency": 3},
            (3, SET),
            id="written",
        ),
        pytest.param({"traffic": {"max_concurrency": 6}}, ASYNC, (6, SET), id="max_concurrency"),
        pytest.param(
            {"traffic": {"max_concurrency": 6}},
            {**ASYNC, "concurrency": 3},
            (3, SET),
            id="both: concurrency",
        ),
        pytest.param({"workers": None, "threads": None, "traffic": None}, SYNC, (1, THREADS)),
    ],
)
def test_a_number_that_is_set_is_meant_and_sync_methods_have_threads(
    config: dict[str, Any], reported: dict[str, Any] | None, expected: tuple[int, str]
) -> None:
    found = slots(config, False, reported=reported)
    assert (found.number, found.source) == expected
    assert not found.tasks


@pytest.mark.parametrize(
    ("config", "reported", "expected"),
    [
        pytest.param(OF_BENTOML, None, (32, LEARNT, 1), id="not reported yet"),
        pytest.param(OF_BENTOML, ASYNC, (32, LEARNT, 1), id="async methods beside"),
        pytest.param({**OF_BENTOML, "threads": 3}, SYNC, (3, THREADS, 1), id="sync ones beside"),
        pytest.param(OF_BENTOML, TASKS, (1, THREADS, 1), id="tasks only"),
        pytest.param(OF_BENTOML, {**ASYNC, "concurrency": 1}, (1, SET, 0), id="the author's 1"),
        pytest.param({"traffic": {"concurrency": 5}}, None, (5, SET, 0), id="5, not reported yet"),
    ],
)
def test_tasks_have_a_slot_of_their_own_where_nothing_is_set(
    config: dict[str, Any], reported: dict[str, Any] | None, expected: tuple[int, str, int]
) -> None:
    found = slots(config, True, reported=reported)
    assert (found.number, found.source, found.tasks) == expected


def test_a_label_fixes_the_number_or_frees_it() -> None:
    written = {"traffic": {"concurrency": 3}}
    reported = {**ASYNC, "concurrency": 3}
    fixed = slots(written, False, reported=reported, label="7")
    assert (fixed.number, fixed.source) == (7, LABEL)
    freed = slots(written, False, reported=reported, label="auto")
    assert (freed.number, freed.source) == (32, LEARNT)
    assert slots(written, False, reported={**SYNC, "concurrency": 3}, label="auto").number == 1


def test_what_was_learnt_goes_on_and_batches_are_the_least() -> None:
    found = slots({}, False, reported={**ASYNC, "batch": 16}, learnt=9)
    assert (found.number, found.least) == (9, 16)


def test_it_says_where_the_number_is_from() -> None:
    said = slots({}, False, reported=ASYNC).text()
    assert said == "32 slots, learnt (async methods; traffic.concurrency is not set)"
    assert slots({}, False, reported=SYNC).text() == (
        "1 slot, threads (sync methods, 1 x 1 threads; traffic.concurrency is not set)"
    )


def test_cpu_count_means_one_worker_per_core_of_the_replica() -> None:
    assert workers({"workers": "cpu_count"}, cpus=3.5) == 3
    assert workers({"workers": "cpu_count"}, cpus=0.5) == 1
    assert workers({"workers": "cpu_count"}) == (os.cpu_count() or 1)
    assert slots({"workers": "cpu_count", "threads": 2}, False, cpus=4, reported=SYNC).number == 8


@pytest.mark.parametrize(
    "said",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"concurrency": "x", "learns": "", "batch": 0, "only_tasks": 0}',
        "{",
        '{"concurrency": NaN, "learns": "", "batch": 0, "only_tasks": 0}',
        '{"concurrency": 1e999, "learns": "", "batch": 0, "only_tasks": 0}',
        '{"concurrency": 1, "learns": [], "batch": 0, "only_tasks": 0}',
        '{"concurrency": 1, "learns": "", "batch": ' + "9" * 5000 + ', "only_tasks": 0}',
        "[" * 60_000,
        "\x00\udc80".encode(errors="surrogateescape").decode(errors="replace"),
    ],
)
def test_what_a_replica_says_otherwise_counts_for_nothing(said: str) -> None:
    assert methods.noted_in(said.encode()) is None


def test_what_a_replica_says_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "methods.json"
    learns = "\ud800, \x1b[2J, async methods, <script>"
    methods.note(file, {"concurrency": -5, "learns": learns, "batch": 10**9, "only_tasks": 0})
    assert methods.noted_in(file.read_bytes()) == {
        "concurrency": 1,
        "learns": "async methods",
        "batch": 1000,
        "only_tasks": False,
    }
