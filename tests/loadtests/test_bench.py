"""`make bench` in small: the tables are whole, and the gateway never exceeds its slots."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hotplate.serving.gateway.sources import routes_file
from loadtests.benchmarks import gateway
from loadtests.benchmarks.gateway_trials import cost, overload
from loadtests.harness.report import markdown_of
from loadtests.harness.route_plan import Plan, RoutesFile
from loadtests.systems.proxies import DIRECT, OURS
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
BENCH = [sys.executable, str(ROOT / "loadtests" / "bench.py"), "--quick"]
PARTS = ("gateway.cost", "gateway.leaving")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `--json` writes of two parts that need nothing but loopback."""
    file = tmp_path_factory.mktemp("bench") / "results.json"
    command = [*BENCH, "--json", str(file), *PARTS]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in PARTS:
        assert f"{name}: " in done.stdout
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def rows(results: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    return {row["figure"]: row for row in results["benchmarks"][name]["rows"]}


def test_each_figure_is_measured_and_says_whether_its_bound_holds(results: dict[str, Any]) -> None:
    assert results["machine"]["cores"] > 0
    found = rows(results, "gateway.cost")
    for figure in cost.TRIAL.figures.values():
        row = found[figure.what]
        assert row["ours"] is not None and row["aiohttp"] is not None
        assert row["holds"] in (("yes", "NO") if figure.bound else ("",))
    assert found["CPU s per 10k requests"]["ours"] > 0
    assert found["CPU s per 10k requests"]["none"] is None
    assert found["of them failed"]["ours"] == 0
    assert any("--quick leaves it out" in figure for figure in found)


def test_the_gateway_never_exceeds_its_slots(results: dict[str, Any]) -> None:
    found = rows(results, "gateway.leaving")
    most = found["they leave after 2 s: most at once"]
    assert most["ours"] == overload.SLOTS and most["holds"] == "yes"
    assert most["none"] > overload.CLIENTS / 2
    assert found["they leave after 2 s: good answers/s"]["ours"] > 0


def test_a_figure_is_the_median_of_the_rounds_above_that_rounds_direct_one() -> None:
    trial = next(trial for trial in gateway.TRIALS if trial.name == "latency")
    samples: gateway.Samples = {
        ("latency", name): [{"p50": value, "p99": value} for value in values]
        for name, values in {OURS: (11.0, 12.3, 10.2), DIRECT: (10.0, 12.2, 10.0)}.items()
    }
    for name in (*trial.proxies, *trial.heavy):
        samples.setdefault(("latency", name), [])
    row = gateway.row_of(trial, "p50", samples)
    assert row.ours == pytest.approx(0.2) and row.holds == "yes"
    assert row.none is None and row.haproxy is None


def test_trials_of_a_group_go_together() -> None:
    groups = [[trial.name for trial in group] for group in gateway.groups_of(gateway.TRIALS)]
    assert ["overload", "leaving"] in groups and ["cost"] in groups
    assert [name for group in groups for name in group] == gateway.PARTS


def test_a_table_for_a_page_shows_each_row_with_its_own_digits() -> None:
    rows = [gateway.Row("a", ours=1.25, digits=2), gateway.Row("b", ours=3.0, digits=0)]
    assert markdown_of("title", rows).splitlines() == [
        "title", "", "| figure | hotplate |", "|---|---|", "| a | 1.25 |", "| b | 3 |",
    ]  # fmt: skip


def test_the_gateway_understands_the_file_of_routes(tmp_path: Path) -> None:
    file = RoutesFile(tmp_path / "routes.toml", 9001, Plan(2, timeout_s=2, weights={"acme": 3}))
    file.write(["127.0.0.1:9101"])
    (route,) = routes_file.read(file.path).routes
    assert (route.timeout_s, route.weights, route.port) == (2, (("acme", 3),), 9001)
    assert [(one.address, one.concurrency) for one in route.replicas] == [("127.0.0.1:9101", 2)]
    file.write([])
    assert routes_file.read(file.path).routes[0].replicas == ()


def test_an_unknown_part_is_refused_with_those_there_are() -> None:
    done = subprocess.run([*BENCH, "gateway.nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.search("'nothing' is none of cost, hosts, latency, overhead, overload", done.stderr)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Gateways make sockets in it, for which pytest's own folders may have too long names."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_ctrl_c_stops_everything_it_has_started(short_folder: Path) -> None:
    # Who starts the suite in the background of a script has it ignore Ctrl-C, children included.
    command = ["env", "--default-signal=INT", *BENCH, "gateway.overload"]
    environ = {"TMPDIR": str(short_folder), "PATH": os.environ["PATH"]}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as bench:
        while not children_in(short_folder):
            assert bench.poll() is None
        bench.send_signal(signal.SIGINT)
        output = bench.communicate(timeout=PATIENCE_S)[0]
    assert bench.returncode == 130, output
    assert output.endswith("stopped\n")
    assert children_in(short_folder) == []
    assert list(short_folder.iterdir()) == []


def children_in(folder: Path) -> list[str]:
    """Command lines of processes that got this folder from their environment or as an argument."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words and b"loadtests.programs.backend" in words:
            found.append(words.decode(errors="replace"))
    return found
