"""The report of a run: its keys, what marks it, and its three files."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.observation import Observation, ObservedRun
from hotplate.platform.loadtest.plan import LoadPlan
from hotplate.platform.loadtest.report import build, write
from hotplate.platform.loadtest.samples import RequestSample
from hotplate.platform.loadtest.thresholds import parse

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
EVIL = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7 * 7 }}|`*_["
KEYS = [
    *("target", "shape", "seed", "started_at", "duration_s", "complete", "rate_per_s", "kept_up"),
    *("requests", "answered", "failed", "refused", "latency_s", "first_byte_s"),
    *("between_events_s", "good_per_s", "cold_starts", "organizations", "series", "replica_s"),
    *("cost", "thresholds"),
]
SERIES = [
    *("step_s", "at", "asked", "answered", "failed", "refused", "p95_s"),
    *("queued", "in_flight", "ready", "starting"),
]
COLD_START = {
    "replica": "r1",
    "revision": 1,
    "service": "Embedder",
    "created_at": "2026-11-23T09:00:01+00:00",
    "ready_at": "2026-11-23T09:00:04.500000+00:00",
    "phases": [
        {"name": "process", "start": 1795424401.0, "end": 1795424403.0, "share_s": 2.0},
        {"name": "init", "start": 1795424403.0, "end": 1795424404.5, "share_s": 1.5},
    ],
}
STARTED_AT = 1795424400.0
"""2026-11-23T09:00:00Z."""


def plan(**changed: Any) -> LoadPlan:
    said = {"url": "http://127.0.0.1:7100", "route": "/embed", "kind": "call"}
    return LoadPlan(**(said | {"duration_s": 10.0, "started_at": STARTED_AT} | changed))


def answers(due_s: Sequence[float], took_s: float = 0.2) -> list[RequestSample]:
    return [
        RequestSample(at, at, at + took_s / 2, at + took_s, 200, 0, 0, number)
        for number, at in enumerate(due_s)
    ]


def observed(**changed: Any) -> ObservedRun:
    said = {"queued": 1, "in_flight": 2, "ready": 1, "starting": 1, "slots": 2, "gpus": 0.0}
    seen = [Observation(at_s=float(at), **(said | changed)) for at in range(11)]
    return ObservedRun(tuple(seen), (COLD_START,))


DUE = [number / 10 for number in range(100)]


def report(
    due_s: Sequence[float] = DUE,
    samples: Sequence[RequestSample] | None = None,
    *,
    gaps_s: Sequence[float] = (),
    seen: ObservedRun | None = None,
    ended_at_s: float = 10.2,
    fail_if: Sequence[str] = (),
    target: str = "embedder",
    **changed: Any,
) -> dict[str, Any]:
    return build(
        plan(**changed),
        target,
        "constant",
        due_s,
        answers(due_s) if samples is None else samples,
        gaps_s,
        observed() if seen is None else seen,
        ended_at_s,
        [parse(one) for one in fail_if],
    )


def test_the_report_has_the_documented_keys() -> None:
    found = report(fail_if=["p95_s > 1.5"])
    assert list(found) == KEYS
    assert list(found["series"]) == SERIES
    columns = [values for name, values in found["series"].items() if name != "step_s"]
    assert {len(values) for values in columns} == {11}
    assert found["rate_per_s"] == {"asked": 10.0, "achieved": 10.0}
    assert found["started_at"] == "2026-11-23T09:00:00+00:00"
    assert (found["requests"], found["answered"], found["good_per_s"]) == (100, 100, 9.9)
    assert found["latency_s"]["p99"] == pytest.approx(0.2)
    assert found["first_byte_s"]["p99"] == pytest.approx(0.1)
    assert found["between_events_s"] is None and found["cost"] is None
    assert (found["complete"], found["kept_up"]) == (True, True)
    assert found["thresholds"] == [
        {"expression": "p95_s > 1.5", "value": pytest.approx(0.2), "ok": True}
    ]
    json.dumps(found, allow_nan=False)


def test_a_cold_start_has_its_seconds_and_phases() -> None:
    late = COLD_START | {"replica": "r2", "ready_at": None, "phases": []}
    (first, second) = report(seen=ObservedRun((), (COLD_START, late)))["cold_starts"]
    assert first == {
        "replica": "r1",
        "started_at": COLD_START["created_at"],
        "seconds": 3.5,
        "phases": COLD_START["phases"],
    }
    assert second["seconds"] is None


def test_a_load_maker_that_falls_behind_is_marked() -> None:
    late = [one._replace(sent_s=11.0, end_s=11.2) for one in answers(DUE[97:])]
    found = report(samples=[*answers(DUE[:97]), *late], ended_at_s=11.2)
    assert found["rate_per_s"] == {"asked": 10.0, "achieved": 9.7}
    assert found["kept_up"] is False
    assert report(samples=answers(DUE[:98]))["kept_up"] is True


def test_a_closed_loop_asks_for_no_rate() -> None:
    found = report(due_s=(), samples=answers(DUE), users=4)
    assert found["rate_per_s"] == {"asked": None, "achieved": 10.0}
    assert found["kept_up"] is True
    assert sum(found["series"]["asked"]) == 100


def test_a_run_that_was_ended_is_of_what_was() -> None:
    found = report(samples=answers(DUE[:40]), ended_at_s=4.0)
    assert (found["duration_s"], found["complete"], found["kept_up"]) == (4.0, False, True)
    assert found["rate_per_s"] == {"asked": 10.0, "achieved": 10.0}
    assert sum(found["series"]["asked"]) == 40


def test_replica_seconds_are_of_what_was_observed() -> None:
    assert report()["replica_s"] == {"busy": 10.2, "idle": 0.0, "starting": 10.2}
    assert report(seen=observed(gpus=2.0, in_flight=0))["gpu_s"] == {
        "busy": 0.0,
        "idle": 20.4,
        "starting": 20.4,
    }


def test_of_a_url_nothing_is_observed() -> None:
    found = report(seen=ObservedRun())
    assert (found["replica_s"], found["cold_starts"]) == (None, [])
    assert set(found["series"]["ready"]) == {None}


def test_a_run_without_a_request_has_no_figures_and_all_files(tmp_path: Path) -> None:
    found = report(due_s=(), samples=(), seen=ObservedRun(), ended_at_s=0.0, fail_if=["p95_s > 1"])
    assert found["latency_s"] is None and found["good_per_s"] == 0.0
    write(tmp_path, found)
    assert "No request was sent" in (tmp_path / "report.html").read_text()
    assert "cannot be checked" in (tmp_path / "report.md").read_text()


class Elements(HTMLParser):
    """What a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_the_files_have_the_same_figures(tmp_path: Path) -> None:
    found = report(fail_if=["p95_s > 0.1"], gaps_s=[0.05] * 100, organizations=("acme",))
    write(tmp_path / "new" / "folder", found)
    folder = tmp_path / "new" / "folder"
    assert json.loads((folder / "report.json").read_text()) == found
    for name in ("report.md", "report.html"):
        text = (folder / name).read_text()
        for words in ("embedder", "acme", "200 ms", "50 ms", "9.9", "3.5 s", "process", "failed"):
            assert words in text, (name, words)


def test_a_page_fetches_nothing_and_its_policy_forbids_it(tmp_path: Path) -> None:
    write(tmp_path, report(fail_if=["p95_s > 0.1"]))
    text = (tmp_path / "report.html").read_text()
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert "url(" not in text and "@import" not in text
    seen = Elements(text)
    assert not {"link", "img", "iframe", "object", "base"} & set(seen.tags)
    assert not [one for one in seen.attributes if one[0] in ("src", "style", "srcset")]
    assert ("http-equiv", "Content-Security-Policy") in seen.attributes


def test_the_policy_lets_its_own_styles_and_script_run(tmp_path: Path) -> None:
    write(tmp_path, report())
    text = (tmp_path / "report.html").read_text()
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', text)
    parts = re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", text, re.DOTALL)
    digests = [b64encode(sha256(part.encode()).digest()).decode() for part in parts]
    assert len(digests) == 3
    assert sorted(digests) == sorted(re.findall(r"sha256-(\S+?=)", unescape(policy)))


@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")
def test_a_browser_runs_the_script(tmp_path: Path) -> None:
    write(tmp_path, report())
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'own'}"]
    page = (tmp_path / "report.html").as_uri()
    shown = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", page], capture_output=True, text=True, check=True
    ).stdout
    assert "point at a moment, tap it, or use the arrow keys" in shown


def test_names_are_shown_and_nothing_else_of_them(tmp_path: Path) -> None:
    phase = {"name": EVIL, "start": STARTED_AT, "end": None, "share_s": 1.0}
    evil = COLD_START | {"replica": EVIL, "phases": [phase]}
    seen = ObservedRun(observed().observations, (evil,))
    found = report(target=EVIL, seen=seen, organizations=(EVIL,), fail_if=["p95_s > 0"])
    found["shape"] = EVIL
    found["thresholds"][0]["expression"] = EVIL
    write(tmp_path, found)
    page = Elements((tmp_path / "report.html").read_text())
    write(tmp_path / "plain", report(fail_if=["p95_s > 0"], organizations=("acme",)))
    plain = Elements((tmp_path / "plain" / "report.html").read_text())
    assert "img" not in page.tags
    assert page.tags.count("script") == plain.tags.count("script") == 2
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    markdown = (tmp_path / "report.md").read_text()
    assert "<" not in re.sub(r"\\<", "", markdown)
    tables = [line for line in markdown.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) >= 4 for line in tables)


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSetting, match=r"--report .* cannot be written: .*name another folder"):
        write(tmp_path / place, report())


def test_an_answer_without_a_first_byte_counts() -> None:
    samples = [one._replace(first_byte_s=math.nan) for one in answers(DUE)]
    assert report(samples=samples)["first_byte_s"] is None


def test_a_prediction_stands_beside_what_was_measured(tmp_path: Path) -> None:
    found = report()
    found["prediction"] = {
        "starts": 2,
        "replica_s": {"busy": 10.0, "idle": 2.0, "starting": 8.4},
        "wait_s": {"mean": 0.25},
        "measured": {"replica_s": 20.4, "wait_s": None, "starts": 1},
        "off": {"replica_s": 0.0, "wait": None, "wait_s": None},
    }
    write(tmp_path, found)
    assert "| replica-seconds | 20.4 | 20.4 | +0.0% |" in (tmp_path / "report.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert "<td>0.250</td>" in page
    # On a phone a table is scrolled, and the page is not.
    assert page.count("<table>") == len(re.findall(r'<div class="wide"[^>]*>\s*<table>', page)) > 3
