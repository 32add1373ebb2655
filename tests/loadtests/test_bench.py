"""`make bench` in small: the tables are whole, and the gateway never exceeds its slots."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtests.benchmarks import overload
from loadtests.fronts import OURS

ROOT = Path(__file__).parents[2]
BENCH = [sys.executable, str(ROOT / "loadtests" / "bench.py"), "--quick"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `--json` writes of the two benchmarks that need nothing but loopback."""
    file = tmp_path_factory.mktemp("bench") / "results.json"
    command = [*BENCH, "--json", str(file), "gateway", "overload"]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("gateway", "overload"):
        assert f"{name}: " in done.stdout
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def rows(results: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    return {row["front"]: row for row in results["benchmarks"][name]["rows"]}


@pytest.mark.timeout(60)
def test_every_front_that_is_installed_is_measured(results: dict[str, Any]) -> None:
    assert results["machine"]["cores"] > 0
    for name in ("gateway", "overload"):
        for row in rows(results, name).values():
            unmeasured = [key for key, value in row.items() if value is None]
            if row["note"]:
                assert row["note"] == "not installed" and len(unmeasured) == len(row) - 2
            else:
                assert set(unmeasured) <= {"cpu_s_per_10k", "cpu_ratio", "p50_s"}
    for row in rows(results, "gateway").values():
        assert row["note"] or (row["requests_per_s"] > 0 and row["failed"] == 0)
    assert rows(results, "gateway")[OURS]["cpu_ratio"] == 1


@pytest.mark.timeout(60)
def test_the_gateway_never_exceeds_its_slots(results: dict[str, Any]) -> None:
    found = rows(results, "overload")
    assert found[OURS]["most_at_once"] == overload.SLOTS
    assert found[OURS]["leaving_most_at_once"] == overload.SLOTS
    assert found[OURS]["answers_per_s"] > 0
    assert found["none"]["leaving_most_at_once"] > overload.CLIENTS


@pytest.mark.timeout(20)
def test_ctrl_c_stops_everything_it_has_started(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*BENCH, "overload"], env={"TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True
    ) as bench:
        while not children_in(tmp_path):
            assert bench.poll() is None
        bench.send_signal(signal.SIGINT)
        output = bench.communicate(timeout=15)[0]
    assert bench.returncode == 130
    assert output.endswith("stopped\n")
    assert children_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def children_in(folder: Path) -> list[str]:
    """Command lines of processes that got this folder from their environment or as an argument."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words and b"loadtests.backend" in words:
            found.append(words.decode(errors="replace"))
    return found
