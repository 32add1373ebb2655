"""A warm process that becomes a replica, with BentoML's own worker in it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from hotplate.deploy.local.runtime import Command
from hotplate.serving.replica.inside.early_reads import EarlyReads, read_too_early
from hotplate.serving.replica.inside.journal import FILE_NAME, phases_in
from hotplate.serving.replica.inside.modules import (
    BASICS,
    half_imported,
    import_all,
    note_modules,
    noted_modules,
)
from tests.support.patience import PATIENCE_S
from tests.support.replica.bentos import write_bento, write_model
from tests.support.replica.replicas import (
    Agent,
    Phases,
    lend_own_environment,
    model,
    runtime_of,
    workload,
)
from tests.support.replica.standbys import get, standby

ECHO = """
    import os, sys, tempfile
    import bentoml, safetensors
    import neighbour
    from prometheus_client import Counter

    asked = Counter("asked", "how often")

    @bentoml.service(threads=3)
    class Echo:
        model = bentoml.models.BentoModel("tiny:latest")

        def __init__(self):
            with open(self.model.path_of("weights.txt")) as file:
                self.weights = file.read()

        @bentoml.api
        def about(self) -> dict:
            asked.inc()
            print("was asked")
            return {
                "weights": self.weights,
                "neighbour": neighbour.__file__,
                "safe_open": safetensors.safe_open.__module__,
                "env": dict(os.environ),
                "cwd": os.getcwd(),
                "temporary": tempfile.gettempdir(),
                "path": sys.path,
            }
"""


def prepared(folder: Path, env: dict[str, str]) -> Command:
    """What the runtime makes of a bento with one service and one model."""
    bento = write_bento(folder / "bento", ECHO, models=["tiny:v1"])
    (bento / "src" / "neighbour.py").touch()
    tiny = write_model(folder / "tiny", "tiny", "v1")
    lend_own_environment(folder, bento)
    (folder / "replica").mkdir()
    served = workload(models=(model("tiny", "v1", "tiny"),), env=env)
    runtime = runtime_of(folder, Agent({"bento": bento, "tiny": tiny}))
    prepare = runtime.prepare(served, "replica", str(folder / "replica"), Phases())
    return asyncio.run(prepare)


def test_a_standby_becomes_a_replica_as_if_it_had_been_started_for_it(tmp_path: Path) -> None:
    command = prepared(tmp_path, {"GREETING": "hi"})
    assert command.warm is not None
    modules = Path(command.warm.job["modules"])
    modules.write_text(json.dumps([*BASICS, "safetensors", "no_such_module", "neighbour"]))
    with standby(command.warm, tmp_path / "standby") as warm:
        assert warm.says() == {"warm": 6, "failed": ["no_such_module", "neighbour"]}
        log = tmp_path / "replica" / "log"
        url, answer = warm.become(command, log)
        assert answer == {"taken": True}
        shutil.rmtree(tmp_path / "standby")
        get(f"{url}/readyz")

        about = json.loads(get(f"{url}/about", {}))
        home = tmp_path / "replica"
        assert about["weights"] == "42"
        assert about["safe_open"] == "hotplate.serving.weights"
        assert about["cwd"].startswith(str(home / "bento"))
        assert about["neighbour"].startswith(str(home / "bento"))
        assert about["env"]["GREETING"] == "hi"
        assert about["env"]["BENTOML_HOME"] == str(home / "home")
        assert about["temporary"] == about["env"].get("TMPDIR", about["temporary"])
        assert not [name for name in about["env"] if name.startswith("HOTPLATE_STANDBY")]
        assert not [place for place in about["path"] if place.startswith(str(tmp_path / "standby"))]

        metrics = get(f"{url}/metrics").decode()
        assert "asked_total 1.0" in metrics
        assert 'endpoint="/about"' in metrics
        assert "was asked" in log.read_text()

        process, init = phases_in((home / FILE_NAME).read_bytes())
        assert process.end is not None
        assert process.end - process.start < init.start - process.start + 0.5
        assert "uvicorn" in noted_modules(command.job["modules"]), "it notes for the next one"
        warm.process.send_signal(signal.SIGTERM)
        assert warm.process.wait(PATIENCE_S) in (0, -signal.SIGTERM)


def test_a_standby_refuses_a_job_whose_variables_come_too_late_and_ends(tmp_path: Path) -> None:
    command = prepared(tmp_path, {"PROMETHEUS_DISABLE_CREATED_SERIES": "1", "HARMLESS": "1"})
    assert command.warm is not None
    Path(command.warm.job["modules"]).write_text("[]")
    with standby(command.warm, tmp_path / "standby") as warm:
        assert warm.says() == {"warm": 0, "failed": []}
        _, answer = warm.become(command, tmp_path / "replica" / "log")
        assert answer == {"refused": "PROMETHEUS_DISABLE_CREATED_SERIES had been read when it came"}
        assert warm.process.wait(PATIENCE_S) == 0


def test_a_standby_ends_with_whoever_started_it(tmp_path: Path) -> None:
    command = prepared(tmp_path, {})
    assert command.warm is not None
    Path(command.warm.job["modules"]).write_text("[]")
    with standby(command.warm, tmp_path / "standby") as warm:
        warm.says()
        warm.channel.shutdown(2)
        assert warm.process.wait(PATIENCE_S) == 0


def test_a_replica_of_several_processes_says_how_many(tmp_path: Path) -> None:
    bento = write_bento(tmp_path / "bento", "")
    lend_own_environment(tmp_path, bento)
    runtime = runtime_of(tmp_path, Agent({"bento": bento}))
    (tmp_path / "r").mkdir()
    served = workload(config={"workers": 2})
    command = asyncio.run(runtime.prepare(served, "r", str(tmp_path / "r"), Phases()))
    assert command.processes == 2


def test_what_a_standby_starts_with_is_no_deployments(tmp_path: Path) -> None:
    command = prepared(tmp_path, {"TOKEN": "secret", "HF_HOME": "/mine"})
    assert command.warm is not None
    assert command.env["TOKEN"] == "secret"
    assert "TOKEN" not in command.warm.env
    assert command.warm.env.get("HF_HOME") != "/mine"
    assert str(tmp_path / "replica") not in json.dumps([command.warm.env, command.warm.job])


def test_early_reads_are_those_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSIDE", "1")
    with EarlyReads() as early:
        os.environ.get("INSIDE")
        os.getenv("MISSING")
    os.environ.get("OUTSIDE")
    assert {"INSIDE", "MISSING"} <= early.names
    assert "OUTSIDE" not in early.names


@pytest.mark.parametrize(
    ("before", "wanted", "early"),
    [
        ({"A": "1"}, {"A": "1", "B": "2"}, []),
        ({"READ": "1"}, {"READ": "1"}, []),
        ({"READ": "1"}, {"READ": "2"}, ["READ"]),
        ({"READ": "1"}, {}, ["READ"]),
        ({}, {"READ": "2", "OMP_NUM_THREADS": "2"}, ["OMP_NUM_THREADS", "READ"]),
        ({}, {"BENTOML_HOME": "/r", "HOTPLATE_REPLICA_DIR": "/r", "TMPDIR": "/r/tmp"}, []),
    ],
)
def test_a_variable_comes_too_early_when_it_was_read_or_belongs_to_native_code(
    before: dict[str, str], wanted: dict[str, str], early: list[str]
) -> None:
    names = {"READ", "BENTOML_HOME", "HOTPLATE_REPLICA_DIR"}
    assert read_too_early(names, before, wanted) == early
    assert read_too_early(names, before, wanted, early) == []


def test_modules_are_kept_in_their_order_and_a_wrong_list_is_never_fatal(tmp_path: Path) -> None:
    path = tmp_path / "modules.json"
    assert noted_modules(str(path)) == list(BASICS)
    note_modules(str(path))
    names = noted_modules(str(path))
    assert names.index("json") < names.index("pytest")
    assert __name__ not in names, "it is not of the environment"
    assert os.listdir(tmp_path) == ["modules.json"]
    for wrong in ("{", "3", '{"a": 1}'):
        path.write_text(wrong)
        assert noted_modules(str(path)) in (list(BASICS), [])
    path.write_text('[1, "json"]')
    assert noted_modules(str(path)) == ["json"]


def test_a_module_that_cannot_be_imported_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)")
    (tmp_path / "good_one.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    failed = import_all(["leaves", "no_such", "sys.below", "good_one"])
    assert list(failed) == ["leaves", "no_such", "sys.below"]
    assert "good_one" in sys.modules
    said = half_imported(failed)
    assert said == "replicas have imported what cannot be imported here: leaves (SystemExit: 3)"
    assert half_imported(import_all(["no_such.below", "sys.below"])) == ""


def test_what_cannot_be_noted_is_left(tmp_path: Path) -> None:
    note_modules(str(tmp_path / "gone" / "modules.json"))
    assert os.listdir(tmp_path) == []
