"""What a replica answers when it is asked how it started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotplate.serving.replica.inside.journal import Journal
from hotplate.serving.replica.inside.report import MOST_BYTES, dumped, report
from hotplate.serving.streaming.start_clock import LAUNCHED

METHODS = {"concurrency": 3, "learns": "", "batch": 0, "only_tasks": False}


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    notes = Journal(tmp_path / "phases.jsonl")
    notes.note("process", "begin", 100.5)
    notes.note("process", "end", 102.0)
    notes.note("init", "begin", 102.0)
    (tmp_path / "methods.json").write_text(json.dumps(METHODS))
    (tmp_path / "modules.json").write_text('["bentoml"]')
    return {"journal": str(tmp_path / "phases.jsonl"), "modules": str(tmp_path / "modules.json")}


def test_times_are_since_the_launcher_began(
    job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LAUNCHED, "100.0 5.0")
    assert report(job) == {
        "phases": {"process": [0.5, 2.0], "init": [2.0, None]},
        "methods": METHODS,
        "modules": ["bentoml"],
    }


def test_without_a_launcher_they_are_since_the_first_phase(
    job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LAUNCHED, raising=False)
    assert report(job)["phases"]["process"] == [0.0, 1.5]


def test_what_a_bento_has_written_there_is_bounded(job: dict[str, Any]) -> None:
    Path(job["modules"]).write_text(json.dumps(["\u20ac" * (MOST_BYTES // 4)], ensure_ascii=False))
    said = dumped(report(job))
    assert len(said) <= MOST_BYTES and json.loads(said)["methods"] == METHODS
    Path(job["journal"]).unlink()
    assert json.loads(dumped(report(job)))["phases"] == {}
