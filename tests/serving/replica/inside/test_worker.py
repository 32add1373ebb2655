"""The replica's process, started by what the runtime prepared, with BentoML's own worker in it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hotplate.serving.replica.inside.journal import FILE_NAME, phases_in
from tests.support.patience import PATIENCE_S
from tests.support.replica.bentos import write_bento, write_model
from tests.support.replica.replicas import Replica, model, started, workload

ECHO = """
    import gc, os, time
    import bentoml, safetensors

    COLLECTED = gc.isenabled()

    @bentoml.service(traffic={"timeout": 1}, envs=[{"name": "GREETING", "value": "hi"}])
    class Echo:
        model = bentoml.models.BentoModel("tiny:latest")

        def __init__(self):
            with open(self.model.path_of("weights.txt")) as file:
                self.weights = file.read()

        @bentoml.api
        def about(self) -> dict:
            return {
                "weights": self.weights,
                "safe_open": safetensors.safe_open.__module__,
                "env": dict(os.environ),
                "cwd": os.getcwd(),
                "garbage": [COLLECTED, gc.get_freeze_count() > 10_000],
            }

        @bentoml.api
        def wait(self, seconds: float) -> list[str]:
            time.sleep(seconds)
            return ["waited"]
"""


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("echo")
    bento = write_bento(folder / "bento", ECHO, models=["tiny:v1"])
    tiny = write_model(folder / "tiny", "tiny", "v1")
    served = workload(
        models=(model("tiny", "v1", "tiny"),), env={"BENTOML_HOME": "/elsewhere"}, cpus=2
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLATFORM_SECRET", "x")
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        with started(folder, bento, served, tiny=tiny) as replica:
            replica.get("/readyz")
            yield replica


def test_a_service_finds_its_model_in_a_store_of_its_own(echo: Replica) -> None:
    assert echo.call("about")["weights"] == "42"


def test_streaming_is_in_place_before_the_service_is_imported(echo: Replica) -> None:
    assert echo.call("about")["safe_open"] == "hotplate.serving.weights"


def test_garbage_is_looked_for_in_what_is_the_services_own(echo: Replica) -> None:
    assert echo.call("about")["garbage"] == [True, True]


def test_a_service_gets_its_own_variables_and_not_the_platforms_secrets(echo: Replica) -> None:
    env = echo.call("about")["env"]
    assert env["GREETING"] == "hi"
    assert env["OMP_NUM_THREADS"] == "2"
    assert env["BENTOML_HOME"] == str(echo.log.parent / "home")
    assert not {"PLATFORM_SECRET", "PYTHONDONTWRITEBYTECODE"} & set(env)
    assert "BENTOML_HOME is the platform's" in echo.log.read_text()


def test_bentomls_own_timeout_is_out_of_the_way(echo: Replica) -> None:
    assert echo.call("wait", seconds=1.3) == ["waited"]


def test_metrics_are_counted(echo: Replica) -> None:
    echo.call("wait", seconds=0)
    assert b'endpoint="/wait"' in echo.get("/metrics")


def test_the_process_notes_when_it_was_up_and_when_the_service_was_ready(echo: Replica) -> None:
    phases = phases_in((echo.log.parent / FILE_NAME).read_bytes())
    assert [phase.name for phase in phases] == ["process", "init"]
    process, init = phases
    assert process.end is not None
    assert init.end is not None
    assert process.start < process.end <= init.start < init.end


def test_it_says_to_whoever_asks_what_it_has_noted(echo: Replica) -> None:
    said = json.loads(echo.get("/hotplate/report"))
    assert list(said["phases"]) == ["process", "init"]
    assert said["methods"]["batch"] == 0 and "bentoml" in said["modules"]


def test_the_process_notes_what_it_had_imported_without_the_bento_and_without_us(
    echo: Replica,
) -> None:
    names = json.loads((echo.log.parent / "modules.json").read_text())
    assert {"bentoml", "uvicorn", "safetensors", "_bentoml_impl.worker.service"} <= set(names)
    assert not [name for name in names if name.startswith("hotplate") or name == "service"]


def test_sigterm_finishes_what_is_in_flight_and_ends_the_process(tmp_path: Path) -> None:
    source = """
        import time, bentoml

        @bentoml.service
        class Echo:
            @bentoml.api
            def wait(self, begun: str) -> list[str]:
                open(begun, "w").close()
                time.sleep(0.7)
                return ["finished"]

            @bentoml.on_shutdown
            def leave(self):
                open("left", "w").close()
    """
    bento = write_bento(tmp_path / "bento", source)
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    with started(tmp_path, bento, workload(), warm=True) as replica, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(replica.call, "wait", begun=str(begun))
        begun.read_text()
        replica.process.send_signal(signal.SIGTERM)
        assert answer.result() == ["finished"]
        assert replica.ended() in (0, -signal.SIGTERM)
    assert list(tmp_path.rglob("left"))


def test_sigterm_ends_a_replica_that_is_not_ready_at_once(tmp_path: Path) -> None:
    source = """
        import os, time, bentoml

        @bentoml.service
        class Echo:
            def __init__(self):
                open(os.environ["BEGUN"], "w").close()
                time.sleep(60)
    """
    bento = write_bento(tmp_path / "bento", source)
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    with started(tmp_path, bento, workload(env={"BEGUN": str(begun)}), warm=True) as replica:
        begun.read_text()
        replica.process.send_signal(signal.SIGTERM)
        assert replica.process.wait(PATIENCE_S) == -signal.SIGTERM


def test_a_custom_command_waits_for_whole_models(tmp_path: Path) -> None:
    source = """
        import bentoml

        @bentoml.service(cmd=["true"])
        class Echo:
            model = bentoml.models.BentoModel("tiny:latest")
    """
    bento = write_bento(tmp_path / "bento", source, models=["tiny:v1"])
    tiny = write_model(tmp_path / "tiny", "tiny", "v1")
    os.mkfifo(tiny / "arriving")
    served = workload(models=(model("tiny", "v1", "tiny"),))
    with (
        started(tmp_path, bento, served, warm=True, tiny=tiny) as replica,
        (tiny / "arriving").open("wb"),  # opens when the replica has opened it, too
    ):
        assert replica.process.poll() is None
        assert "Running service with command" not in replica.log.read_text()


def test_services_of_one_bento_call_each_other_by_url(tmp_path: Path) -> None:
    source = """
        import asyncio, os, bentoml

        @bentoml.service
        class Back:
            @bentoml.api
            def pid(self) -> int:
                return os.getpid()

        @bentoml.service
        class Front:
            back = bentoml.depends(Back)

            @bentoml.api
            def pids(self) -> list[int]:
                return [os.getpid(), self.back.pid()]

            @bentoml.api
            async def at_once(self, calls: int) -> int:
                answers = [self.back.to_async.pid() for _ in range(calls)]
                return len(await asyncio.gather(*answers))
    """
    services: list[dict[str, Any]] = [
        {"name": "Front", "dependencies": [{"service": "Back"}]},
        {"name": "Back"},
    ]
    bento = write_bento(tmp_path / "bento", source, services=services)
    with started(tmp_path, bento, workload("Back", entry=False), warm=True) as back:
        front_of = workload("Front", depends={"Back": back.url})
        with started(tmp_path, bento, front_of, warm=True) as front:
            front.get("/readyz")
            assert front.call("pids") == [front.process.pid, back.process.pid]
            assert front.call("at_once", calls=250) == 250


def test_several_workers_share_one_socket_and_one_end(tmp_path: Path) -> None:
    source = """
        import os, time, bentoml

        @bentoml.service(workers=2)
        class Echo:
            @bentoml.on_deployment
            def once():
                with open(os.environ["DEPLOYED"], "a") as file:
                    file.write("x")

            @bentoml.api
            def pid(self) -> int:
                time.sleep(0.02)
                return os.getpid()
    """
    bento = write_bento(tmp_path / "bento", source)
    served = workload(config={"workers": 2}, env={"DEPLOYED": str(tmp_path / "deployed")})
    with started(tmp_path, bento, served) as replica, ThreadPoolExecutor(4) as pool:
        pids: set[int] = set()
        while len(pids) < 2:  # the second is up a little later; the test's timeout ends this
            pids |= set(pool.map(lambda _: replica.call("pid"), range(8)))
        assert replica.process.pid not in pids
        assert (tmp_path / "deployed").read_text() == "x"
        os.kill(pids.pop(), signal.SIGKILL)
        assert replica.ended() == 1
        with pytest.raises(ProcessLookupError):
            os.kill(pids.pop(), 0)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        pytest.param(
            "import no_such_module",
            "the service imports 'no_such_module', which its environment does not have",
            id="import",
        ),
        pytest.param(
            """
            import bentoml, threading, time
            threading.Thread(target=time.sleep, args=(60,)).start()

            @bentoml.service
            class Echo:
                def __init__(self):
                    raise RuntimeError("no weights today")
            """,
            "no weights today",
            id="construction, with a thread that goes on",
        ),
        pytest.param(
            "raise ExceptionGroup('two reasons', [ValueError('one'), ValueError('two')])",
            "ExceptionGroup: two reasons (2 sub-exceptions)",
            id="a group of exceptions",
        ),
        pytest.param(
            """
            import bentoml

            @bentoml.service(envs=[{"name": "KEY"}])
            class Echo: ...
            """,
            "The service Echo needs a value for KEY",
            id="a variable that only the code declares",
        ),
    ],
)
def test_a_service_that_cannot_start_says_why_on_its_last_line(
    tmp_path: Path, source: str, reason: str
) -> None:
    bento = write_bento(tmp_path / "bento", source)
    with started(tmp_path, bento, workload(), warm=True) as replica:
        assert replica.ended() == 1
        assert reason in replica.log.read_text().splitlines()[-1]
