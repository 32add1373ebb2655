"""`make gpu`: its checks are the tests marked `gpu`; here without a GPU, and on a stand-in."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from loadtests.benchmarks.gpu import GPU_TIMES, LAYER_BYTES, QUICK_LAYERS, layers_that_fit
from loadtests.gpu.checks import CHECKS, Check
from loadtests.gpu_day import FAILS, HOLDS, MISSING, NO_GPU, Row, status_of
from loadtests.harness.child_process import BenchmarkFailed, checkout_environ
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
DAY = str(ROOT / "loadtests" / "gpu_day.py")
STAND_IN = Path(__file__).with_name("stand_in")
PYTORCH = f"{STAND_IN / 'pytorch'}:{STAND_IN}"
SMALL_TORCH = f"{STAND_IN / 'small'}:{STAND_IN}"
IN_FORKS = STAND_IN / "pytorch" / "checks_in_forks.py"
WITH_PYTORCH = (
    "hardware.detected",
    "standbys.plain",
    "standbys.bento",
    "weights.every_dtype",
    "weights.arriving",
    "weights.pretrained",
)
WITH_SMALL_TORCH = (
    "hardware.visible",
    "replicas.whole",
    "replicas.halves",
    "replicas.bento",
)

Findings = dict[str, list[dict[str, Any]]]
"""By check, each line of what its process says."""

QUICK = [pytest.param(check, id=check.name) for check in CHECKS if check.quick]


@pytest.mark.gpu
@pytest.mark.parametrize("check", QUICK)
def test_on_a_gpu(check: Check, tmp_path: Path) -> None:
    if not has_driver() or not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("needs a GPU")
    if missing := check.missing():
        pytest.skip(f"needs {', '.join(missing)}")
    for finding in check.run(tmp_path):
        assert finding.holds is not False, finding


def has_driver() -> bool:
    """PyTorch would say so too, and takes seconds to be imported."""
    with suppress(OSError):
        return bool(ctypes.CDLL("libcuda.so.1"))
    return False


def test_every_test_that_needs_a_gpu_is_one_of_its_checks() -> None:
    """So that they run where there is no pytest."""
    mark = "mark." + "gpu"
    marked = [path for path in ROOT.glob("tests/**/*.py") if mark in path.read_text()]
    assert marked == [Path(__file__)]


def day(
    folder: Path, *names: str, before: tuple[str, ...] = (), **environ: str
) -> tuple[int, list[dict[str, str]]]:
    """Exit status and rows."""
    file = folder / "rows.json"
    command = [sys.executable, *before, DAY, "--json", str(file), *names]
    done = subprocess.run(
        command, env={**os.environ, **environ}, cwd=folder, capture_output=True, text=True
    )
    assert file.exists(), done.stderr
    rows: list[dict[str, str]] = json.loads(file.read_text())
    for row in rows:
        assert f"| {row['check']} " in done.stdout, done.stdout
    return done.returncode, rows


@pytest.mark.parametrize("before", [("-S",), ("-S", "-I")])
def test_without_any_package_each_row_names_what_is_missing(
    tmp_path: Path, before: tuple[str, ...]
) -> None:
    status, rows = day(tmp_path, before=before)
    assert status == 3
    assert len(rows) == 1 + len(CHECKS)
    assert {row["verdict"] for row in rows} == {MISSING}
    about = {row["check"]: row["remark"] for row in rows}
    assert (
        about["a replica of a bento on the GPU, by the local engine"] == "torch, aiohttp, bentoml"
    )
    assert about["GPUs as the platform detects them"] == "torch, nvidia-ml-py"


def test_without_a_gpu_each_row_says_so(tmp_path: Path) -> None:
    status, rows = day(tmp_path, CUDA_VISIBLE_DEVICES="")
    assert status == 3
    assert {(row["verdict"], row["remark"]) for row in rows} == {(MISSING, NO_GPU)}


def test_what_hangs_or_dies_is_a_row_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    faulty, left = tmp_path / "faulty", tmp_path / "left"
    faulty.mkdir()
    names = ("hardware.detected", "hardware.visible")
    path = f"{faulty}:{SMALL_TORCH}"
    is_first = f"import os, subprocess, sys, threading\nif sys.orig_argv[3:4] == [{names[0]!r}]:\n"
    (faulty / "sitecustomize.py").write_text(f"{is_first}    os.abort()\n")
    status, rows = day(tmp_path, *names, PYTHONPATH=path)
    assert status == 1
    assert [row["verdict"] for row in rows] == ["", FAILS, HOLDS, HOLDS]
    assert "ended too early" in rows[1]["remark"]

    (faulty / "sitecustomize.py").write_text(
        f"{is_first}"
        "    command = [sys.executable, '-S', '-c', 'import threading; threading.Event().wait()']\n"
        "    child = subprocess.Popen(command, start_new_session=True)\n"
        f"    open({str(left)!r}, 'w').write(str(child.pid))\n"
        "    threading.Event().wait()\n"
    )
    status, rows = day(tmp_path, "--budget", "8", *names, PYTHONPATH=path)
    assert status == 1
    assert [row["verdict"] for row in rows] == ["", FAILS, "not run"]
    assert "did not end in" in rows[1]["remark"]
    assert not Path("/proc", left.read_text()).exists()


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """What the processes of the checks in `WITH_PYTORCH` say, by check."""
    folder = tmp_path_factory.mktemp("checks")
    limit_s = len(WITH_PYTORCH) * PATIENCE_S
    done = on_stand_in(PYTORCH, folder, limit_s, str(IN_FORKS), str(folder), *WITH_PYTORCH)
    found = {name: lines(folder / f"{name}.said") for name in WITH_PYTORCH}
    assert all(found.values()), done.stderr
    return found


@pytest.mark.parametrize("name", WITH_PYTORCH)
def test_a_check_holds_with_pytorch_on_a_stand_in(name: str, findings: Findings) -> None:
    holds(findings[name])


@pytest.mark.parametrize("name", WITH_SMALL_TORCH)
def test_a_check_holds_on_a_stand_in(name: str, tmp_path: Path) -> None:
    """Whose processes ask little of PyTorch, and would each import it."""
    own = tmp_path / "check"
    own.mkdir()
    module = "loadtests.gpu.check_process"
    done = on_stand_in(SMALL_TORCH, tmp_path, PATIENCE_S, "-m", module, name, str(own))
    assert done.stdout, done.stderr
    holds([json.loads(line) for line in done.stdout.splitlines()])


def holds(said: list[dict[str, Any]]) -> None:
    """Fails unless the check ended well, and each of its findings holds."""
    assert said[-1] == {"end": ""}
    assert said[:-1]
    for finding in said[:-1]:
        is_speed = "to reach" in finding["remark"]  # a busy machine's say nothing here
        assert is_speed or finding["holds"], finding


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def on_stand_in(
    path: str, folder: Path, limit_s: float, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """A Python that has ended, to which one of the stand-ins was shown.

    PyTorch computes in one thread: several would wait for one another, as other tests run beside.
    """
    ours = checkout_environ()
    more = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**ours, "PYTHONPATH": f"{path}:{ours['PYTHONPATH']}", **more},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=limit_s,
    )


def test_the_exit_status_says_what_the_rows_do() -> None:
    rows = {verdict: Row("a check", "", verdict, "") for verdict in (HOLDS, FAILS, MISSING, "")}
    assert status_of([rows[""], rows[HOLDS], rows[MISSING]]) == 0
    assert status_of([rows[HOLDS], rows[FAILS]]) == 1
    assert status_of([rows[MISSING]]) == 3


def test_the_file_is_as_large_as_there_is_room_for() -> None:
    much, least = 1 << 40, QUICK_LAYERS * LAYER_BYTES
    assert layers_that_fit(least + 1, much) == QUICK_LAYERS
    assert layers_that_fit(much, int(GPU_TIMES * least) + 1) == QUICK_LAYERS
    with pytest.raises(BenchmarkFailed, match=r"0\.00 GB of weights"):
        layers_that_fit(0, much)
