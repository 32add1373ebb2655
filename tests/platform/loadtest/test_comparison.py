"""Two runs beside each other: what is worse than noise, and what cannot be compared."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.comparison import Comparison, compare, compared, markdown

STEPS = 60


def run(
    seed: int,
    *,
    slower: float = 1.0,
    failing: float = 0.0,
    fewer: float = 1.0,
    replicas: int = 2,
    steps: int = STEPS,
    jitter: float = 0.1,
) -> dict[str, Any]:
    """A burst in the middle; slow steps come together."""
    rng = random.Random(seed)
    p95_s: list[float | None] = []
    drift = 0.0
    for step in range(steps):
        drift = 0.7 * drift + rng.gauss(0, jitter)
        base_s = 4.0 if steps // 3 <= step < steps // 2 else 0.2
        p95_s.append(base_s * slower * (1 + drift) if step % 7 else None)
    asked = [40] * steps
    failed = [sum(rng.random() < failing for _ in range(40)) for _ in asked]
    answered = [round((40 - bad) * fewer) for bad in failed]
    known = sorted(value for value in p95_s if value is not None)
    figures = {
        part: known[int(share * (len(known) - 1))]
        for part, share in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("max", 1))
    }
    return {
        "target": "embedder",
        "shape": "burst",
        "started_at": "2026-11-23T09:00:00+00:00",
        "duration_s": float(steps),
        "rate_per_s": {"asked": 40.0, "achieved": 40.0},
        "requests": sum(asked),
        "answered": sum(answered),
        "failed": sum(failed),
        "refused": 0,
        "latency_s": figures | {"mean": sum(known) / len(known)},
        "first_byte_s": None,
        "good_per_s": sum(answered) / steps,
        "replica_s": {"busy": replicas * steps / 2, "idle": replicas * steps / 2, "starting": 0.0},
        "series": {
            "step_s": 1,
            "at": list(range(steps)),
            "asked": asked,
            "answered": answered,
            "failed": failed,
            "refused": [0] * steps,
            "p95_s": p95_s,
            "queued": [0] * steps,
            "in_flight": [2] * steps,
            "ready": [replicas] * steps,
            "starting": [0] * steps,
        },
    }


def verdicts(comparison: Comparison) -> dict[str, str]:
    return {one.name: one.verdict for one in comparison.figures}


@pytest.mark.parametrize("seed", range(5))
def test_two_runs_of_the_same_are_the_same(seed: int) -> None:
    assert compared(run(seed), run(seed)).worse == []
    assert set(verdicts(compared(run(seed), run(seed))).values()) == {"same"}


def test_noise_is_seldom_called_worse() -> None:
    """95 of 100, by the bootstrap's confidence; a block bootstrap of 60 steps is a little bold."""
    called = [
        "worse" in verdicts(compared(run(2 * n), run(2 * n + 1)))["latency mean, s"]
        for n in range(40)
    ]
    assert sum(called) <= 6


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"slower": 1.5}, "latency p95, s"),
        ({"slower": 1.5}, "latency p50, s"),
        ({"failing": 0.05}, "failed share"),
        ({"fewer": 0.9}, "good per second"),
        ({"replicas": 3}, "replica-seconds"),
    ],
)
def test_what_is_worse_is_found_and_its_opposite_is_better(
    changed: dict[str, Any], name: str
) -> None:
    before, after = run(1), run(2, **changed)
    assert verdicts(compared(before, after))[name] == "worse"
    assert verdicts(compared(after, before))[name] == "better"
    assert f"| {name} |" in markdown(compared(before, after))


def test_a_change_of_half_a_percent_is_none_however_steady() -> None:
    assert (
        verdicts(compared(run(1, jitter=0), run(1, jitter=0, slower=1.005)))["latency p95, s"]
        == "same"
    )


def test_the_same_two_reports_have_the_same_noise() -> None:
    assert compared(run(1), run(2)).to_json() == compared(run(1), run(2)).to_json()
    json.dumps(compared(run(1), run(2)).to_json(), allow_nan=False)


def test_too_few_steps_have_no_noise_and_nothing_is_worse() -> None:
    found = compared(run(1, steps=7), run(2, steps=7, slower=9.0))
    assert verdicts(found)["latency p95, s"] == "unknown"
    assert "fewer than 8 steps" in markdown(found)


def test_a_tail_that_only_one_run_has_is_compared_with_nothing() -> None:
    before, after = run(1), run(1)
    after["series"] = {
        name: values if name == "step_s" else [*values, *values[:5]]
        for name, values in after["series"].items()
    }
    assert compared(before, after).figures


def test_folders_and_files_can_be_named(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(json.dumps(run(1)))
    assert compare(tmp_path / "a", tmp_path / "b" / "report.json").worse == []


def without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda report: {key: value for key, value in report.items() if key != name}


def with_series(**changed: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda report: report | {"series": report["series"] | changed}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (without("latency_s"), "it has no 'latency_s'"),
        (without("series"), "it has no 'series'"),
        (lambda report: [report], "it has no object at its top"),
        (lambda report: report | {"series": []}, "it has no 'series' with its 'step_s'"),
        (with_series(step_s="1"), "it has no 'series' with its 'step_s'"),
        (with_series(failed=[1]), "it has no 'failed' of each step"),
        (with_series(p95_s=None), "it has no 'p95_s' of each step"),
        (lambda report: report | {"shape": "day"}, "shape burst over 60 s"),
        (lambda report: report | {"duration_s": 61.0}, "over 61 s"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], sentence: str
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps(run(1)))
    second.write_text(json.dumps(change(run(2))))
    with pytest.raises(BadSetting) as refused:
        compare(first, second)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("--compare")


def test_a_file_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="cannot be read: No such file"):
        compare(tmp_path / "none", tmp_path / "none")
    (tmp_path / "text").write_text("requests: 4")
    with pytest.raises(BadSetting, match="it is no JSON"):
        compare(tmp_path / "text", tmp_path / "text")
