"""The program of a pod, in a container as a kubelet has it started: without a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from hotplate.deploy.cluster.objects import USER
from hotplate.deploy.cluster.pod_spec import PodSpec
from hotplate.deploy.workload import Model, Workload
from hotplate.serving.replica.pods.report import report_in
from hotplate.serving.replica.pods.runtime import BentoPodRuntime
from hotplate.serving.replica.secret_values import SecretValue
from tests.support.patience import PATIENCE_S, until
from tests.support.replica.bentos import write_bento, write_model
from tests.support.replica.pods import MANIFEST, OneBento, OneEnvironment, Pod, lay_out, running
from tests.support.replica.replicas import SecretsOf, workload
from tests.support.services import shapes

SOURCE = """
    import os, time
    import bentoml

    @bentoml.service
    class Inner:
        @bentoml.api
        def name(self) -> str:
            return type(self).__name__

    @bentoml.service(workers=2, traffic={"timeout": 20})
    class Echo:
        inner = bentoml.depends(Inner)
        tiny = bentoml.models.BentoModel("tiny:v1")

        @bentoml.api
        def told(self) -> dict:
            with open(self.tiny.path_of("weights.txt")) as file:
                weights = file.read()
            with open(os.path.expandvars("$BENTOML_HOME/keys/key.txt")) as file:
                key = file.read()
            open("written", "w").write("x")
            try:
                open("/written", "w")
                root = "written"
            except OSError as error:
                root = error.strerror
            return {
                "weights": weights, "key": key, "cwd": os.getcwd(), "uid": os.getuid(),
                "env": dict(os.environ), "root": root, "parent": os.getppid(),
                "files": os.listdir("."),
            }

        @bentoml.api
        def wait(self, seconds: float) -> list[str]:
            open("/scratch/begun", "w").close()
            time.sleep(seconds)
            return ["waited"]
"""
SERVICES = (
    {"name": "Echo", "config": {"workers": 2}, "dependencies": [{"service": "Inner"}]},
    {"name": "Inner"},
)
ECHO = replace(
    workload(
        env={"GREETING": "hello"},
        secrets=("key", "token"),
        models=(Model("tiny", "v1", MANIFEST),),
        config={"workers": 2, "traffic": {"timeout": 20}},
        depends={"Inner": "http://hotplate:revision-secret@inner.svc"},
        request_timeout_s=20.0,
    ),
    bento_manifest=MANIFEST,
)
INNER = replace(ECHO, key=replace(ECHO.key, service="Inner"), entry=False, config={}, depends={})
WHEN_ASKED = (0, 128 + signal.SIGTERM)
"""With what a worker ends that is told to."""
SECRETS = SecretsOf(
    key=SecretValue("key", "file-secret", file="keys/key.txt"),
    token=SecretValue("TOKEN", "variable-secret"),
)


def _container_cannot_be_made() -> str:
    if os.geteuid():
        return "only root can make the namespaces of a container"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--net", "true"])
    return "no namespaces can be made here" if tried.returncode else ""


pytestmark = pytest.mark.skipif(
    bool(_container_cannot_be_made()), reason=_container_cannot_be_made() or "-"
)


@pytest.fixture(scope="module")
def bento(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bento")
    return write_bento(folder / "bento", SOURCE, models=["tiny:v1"], services=SERVICES)


async def spec_of(bento: Path, served: Workload) -> PodSpec:
    runtime = BentoPodRuntime(OneBento(bento), OneEnvironment(), b"key", secrets=SECRETS)
    return await runtime.pod_spec(served, "h-served", "hotplate-t-acme")


@pytest.fixture(scope="module")
def spec(bento: Path) -> PodSpec:
    return asyncio.run(spec_of(bento, ECHO))


@pytest.fixture(scope="module")
def folder(spec: PodSpec, bento: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its volumes: they stay when its container ends."""
    made = tmp_path_factory.mktemp("pod")
    tiny = write_model(made / "tiny", "tiny", "v1")
    lay_out(made / "echo", spec, bento, {"tiny/v1": tiny}, ["bento/bento.yaml"])
    return made / "echo"


@pytest.fixture(scope="module")
def pod(spec: PodSpec, folder: Path) -> Iterator[Pod]:
    with running(folder, spec) as pod:
        asyncio.run(until(lambda: pod.is_ready(spec.ready_path)))
        yield pod


def test_a_service_finds_what_it_would_on_one_machine(pod: Pod) -> None:
    told = pod.get("/told", {})
    assert (told["weights"], told["key"]) == ("42", "file-secret")
    assert told["cwd"] == "/scratch/bento/src"
    assert "written" in told["files"]
    env = told["env"]
    assert (env["GREETING"], env["TOKEN"]) == ("hello", "variable-secret")
    assert (env["HOME"], env["TMPDIR"]) == ("/scratch/user", "/scratch/tmp")
    assert env["BENTOML_HOME"] == "/scratch/home"
    assert env["HOTPLATE_REPLICA_UID"] == "uid-1"
    assert "HOTPLATE_DEPENDS" not in env


def test_it_has_no_rights_and_writes_to_its_own_folders_only(pod: Pod) -> None:
    told = pod.get("/told", {})
    assert told["uid"] == USER
    assert told["root"] == "Read-only file system"
    assert told["parent"] == 2, "the launcher stays the first, and buries"


def test_it_says_how_it_started(pod: Pod) -> None:
    said = pod.get("/hotplate/report")
    assert "bentoml" in said["modules"]
    report = report_in(json.dumps(said).encode())
    assert report is not None and report.about is not None
    assert (report.about["concurrency"], report.about["only_tasks"]) == (None, False)
    process, init = report.phases
    assert (process.name, init.name) == ("process", "init")
    assert process.end is not None and init.end is not None
    assert 0 <= process.start < process.end <= init.start < init.end


async def test_what_runs_ends_in_time_and_the_container_starts_again(
    pod: Pod, spec: PodSpec, folder: Path
) -> None:
    (folder / "scratch" / "left").mkdir(mode=0o500)
    os.chown(folder / "scratch" / "left", USER, USER)
    answer = pod.ask("/wait", {"seconds": 1.0})
    await until((folder / "scratch" / "begun").exists)
    pod.end()
    assert answer.result() == ["waited"]
    assert pod.ended() == 0
    with running(folder, spec) as again:
        await until(lambda: again.is_ready(spec.ready_path))
        assert not (folder / "scratch" / "left").exists()
        assert again.get("/told", {})["key"] == "file-secret"
        again.end()
        assert again.ended() == 0


async def test_what_it_learns_goes_to_its_agent_and_what_others_have_learnt_is_there(
    bento: Path, tmp_path: Path
) -> None:
    spec, folder = await spec_of(bento, INNER), tmp_path / "inner"
    lay_out(folder, spec, bento, {"tiny/v1": write_model(tmp_path / "tiny", "tiny", "v1")})
    (folder / "hotplate" / "compiled" / "triton").mkdir(parents=True)
    (folder / "hotplate" / "compiled" / "triton" / "kernel.so").write_bytes(b"kernel")
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(folder / "hotplate" / "agent.sock"))
        (folder / "hotplate" / "agent.sock").chmod(0o666)
        agent.listen()
        agent.settimeout(PATIENCE_S)
        with running(folder, spec) as pod:
            await until(lambda: pod.is_ready(spec.ready_path))
            assert spec.env["TRITON_CACHE_DIR"] == "/scratch/compiled/triton"
            own = folder / "scratch" / "compiled" / "triton" / "kernel.so"
            assert own.read_bytes() == b"kernel" and own.stat().st_uid == USER
            pod.end()
            connection, _ = agent.accept()
            with connection, connection.makefile("rb") as said:
                assert json.loads(said.readline()) == {"keep": True}
                assert "bentoml" in json.loads((folder / "scratch" / "modules.json").read_bytes())
                connection.sendall(b'{"kept": true}\n')
            assert pod.ended() in WHEN_ASKED


async def test_another_service_of_the_bento_is_another_pod(bento: Path, tmp_path: Path) -> None:
    spec = await spec_of(bento, INNER)
    tiny = write_model(tmp_path / "tiny", "tiny", "v1")
    lay_out(tmp_path / "inner", spec, bento, {"tiny/v1": tiny})
    with running(tmp_path / "inner", spec) as pod:
        await until((tmp_path / "inner" / "scratch" / "bento").exists)
        pod.end()
        assert pod.ended() == WHEN_ASKED[1], "one that has not begun ends at once"
    with running(tmp_path / "inner", spec) as pod:
        await until(lambda: pod.is_ready(spec.ready_path))
        assert pod.get("/name", {}) == b"Inner"


@pytest.mark.skipif(not find_spec("fastapi"), reason="BentoML needs fastapi for a command")
@pytest.mark.parametrize("written_down", [True, False], ids=["said", "not said"])
async def test_a_services_own_program_has_its_port_and_ends_with_the_pod(
    tmp_path: Path, written_down: bool
) -> None:
    source = shapes.COMMAND if written_down else shapes.COMMAND.replace("--port", "--any")
    own = write_bento(tmp_path / "bento", source, services=[{"name": "Command"}])
    key, env = replace(ECHO.key, service="Command"), {"NOTES": "/scratch/notes"}
    served = replace(ECHO, key=key, models=(), secrets=(), env=env, config={}, depends={})
    spec = await spec_of(own, served)
    lay_out(tmp_path / "pod", spec, own)
    with running(tmp_path / "pod", spec) as pod:
        await until(lambda: pod.is_ready("/any"))
        pod.end()
        assert pod.ended() in WHEN_ASKED
    assert (tmp_path / "pod" / "scratch" / "notes").read_text() == "ended\n"


async def test_what_is_missing_is_said_in_a_sentence(bento: Path, tmp_path: Path) -> None:
    spec = await spec_of(bento, INNER)
    lay_out(tmp_path / "inner", spec, bento)
    (tmp_path / "inner" / "job" / "job.json").unlink()
    with running(tmp_path / "inner", spec) as pod:
        assert pod.ended() == 1
        (line,) = pod.log.read_text().splitlines()
    assert "/job/job.json" in line and line.startswith("The replica cannot be prepared")
