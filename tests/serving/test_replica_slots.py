from __future__ import annotations

import os
from typing import Any

import pytest

from hotplate.serving.replica.slots import slots, workers


@pytest.mark.parametrize(
    ("config", "has_tasks", "expected"),
    [
        pytest.param({}, False, 1, id="nothing said"),
        pytest.param({"threads": 4}, False, 4, id="threads"),
        pytest.param({"workers": 2, "threads": 4}, False, 8, id="workers x threads"),
        pytest.param({"traffic": {"concurrency": 32}, "threads": 4}, False, 32, id="concurrency"),
        pytest.param({"traffic": {"max_concurrency": 6}}, False, 6, id="max_concurrency"),
        pytest.param(
            {"traffic": {"concurrency": 3, "max_concurrency": 6}}, False, 3, id="both: concurrency"
        ),
        pytest.param({"threads": 4}, True, 1, id="tasks run one at a time"),
        pytest.param({"traffic": {"concurrency": 5}}, True, 5, id="tasks with concurrency"),
        pytest.param({"workers": None, "threads": None, "traffic": None}, False, 1, id="nulls"),
    ],
)
def test_slots_follow_what_the_author_wrote(
    config: dict[str, Any], has_tasks: bool, expected: int
) -> None:
    assert slots(config, has_tasks) == expected


def test_cpu_count_means_one_worker_per_core_of_the_replica() -> None:
    assert workers({"workers": "cpu_count"}, cpus=3.5) == 3
    assert workers({"workers": "cpu_count"}, cpus=0.5) == 1
    assert workers({"workers": "cpu_count"}) == (os.cpu_count() or 1)
    assert slots({"workers": "cpu_count", "threads": 2}, False, cpus=4) == 8
