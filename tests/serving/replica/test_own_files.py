"""What a replica makes for itself is enough to serve, once its node has given it what is shared."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from hotplate.deploy.local.runtime import Command
from hotplate.serving.replica.own_files import OwnFiles, Shared, Surroundings
from hotplate.serving.replica.payload import make_payload
from tests.support.patience import until
from tests.support.replica.bentos import write_bento, write_model
from tests.support.replica.replicas import Replica, model, workload

SERVICE = """
import os
import bentoml

@bentoml.service
class Echo:
    tiny = bentoml.models.BentoModel("tiny:v1")

    @bentoml.api
    def told(self) -> list:
        written = open("written", "w").write("x")
        return [os.environ["GREETING"], os.getcwd(), str(self.tiny.path), written]
"""


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(
        python=Path(sys.executable),
        payload=make_payload(tmp_path / "parts"),
        trees=tmp_path / "trees",
        agent_socket=tmp_path / "agent.sock",
    )


async def test_no_agent_and_no_build_is_asked_by_what_a_replica_does_itself(
    tmp_path: Path, shared: Shared
) -> None:
    bento = write_bento(tmp_path / "bento", SERVICE)
    tiny = write_model(tmp_path / "trees" / "tiny", "tiny", "v1")
    served = workload(env={"GREETING": "hello", "BENTOML_HOME": "/elsewhere"})
    own = OwnFiles(tmp_path / "scratch")
    own.make()
    own.copy_bento(bento)
    own.link_models([(model("tiny", "v1", "tiny"), str(tiny))])
    around = Surroundings({"PATH": os.environ["PATH"]}, {"GREETING": "hello"})
    program = own.program(served, "served-1-echo-abcde", shared, around)
    assert "BENTOML_HOME" in program.job["notes"][0]
    command = Command(program.argv, program.env, program.cwd, program.job)
    replica = Replica(command, own.folder)
    try:
        await until(lambda: _is_ready(replica, program.ready_path))
        home = f"{own.folder}/home/models/tiny/v1"
        assert replica.call("told") == ["hello", f"{own.bento}/src", home, 1]
    finally:
        os.killpg(replica.process.pid, signal.SIGKILL)
        replica.ended()
    written = Path("src", "written")
    assert not (bento / written).exists() and (own.bento / written).exists()


def _is_ready(replica: Replica, path: str) -> bool:
    try:
        return replica.get(path) is not None
    except OSError:
        return False
