"""The replica's process around services that are more than handlers of one process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from hotplate.serving.replica.command_port import moved, place_command
from hotplate.serving.replica.ready_path import ready_path
from hotplate.serving.replica.variables import SOCKET_FOLDER_BYTES, temporary_folder
from tests.patience import PATIENCE_S
from tests.scenarios import shapes
from tests.serving.bentos import write_bento
from tests.serving.callers import until
from tests.serving.replicas import Served, started


def test_a_deployments_threads_are_used_and_a_batch_of_one_is_explained(tmp_path: Path) -> None:
    source = """
        import threading, bentoml

        both = threading.Barrier(2, timeout=20)

        @bentoml.service(threads=1)
        class Echo:
            @bentoml.api
            def meet(self) -> int:
                return both.wait()

            @bentoml.api(batchable=True)
            def lengths(self, texts: list[str]) -> list[int]:
                return [len(text) for text in texts]
    """
    bento = write_bento(tmp_path / "bento", source)
    with (
        started(tmp_path, bento, Served(config_overrides={"threads": 2})) as replica,
        ThreadPoolExecutor(2) as pool,
    ):
        assert sorted(pool.map(lambda _: replica.call("meet"), range(2))) == [0, 1]
        said = replica.log.read_text()
        assert "Echo gets one request at a time, so lengths will never see a batch" in said


def test_the_answer_to_a_tasks_submission_ends_with_the_task(tmp_path: Path) -> None:
    source = """
        import bentoml

        @bentoml.service
        class Echo:
            @bentoml.task
            def wait(self, gate: str) -> str:
                return open(gate).read()
    """
    bento = write_bento(tmp_path / "bento", source)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with started(tmp_path, bento, Served()) as replica:
        replica.get("/readyz")
        host, port = replica.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as caller:
            body = json.dumps({"gate": str(gate)}).encode()
            caller.sendall(
                b"POST /wait/submit HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            answered = _read_until(caller, b"}\r\n")
            assert b"hotplate-answer-bytes: " in answered.lower()
            task = json.loads(answered[answered.index(b"{") : answered.index(b"}") + 1])
            with gate.open("w") as file:
                file.write("through")
            assert _read_until(caller, b"0\r\n\r\n")
            assert replica.get(f"/wait/get?task_id={task['task_id']}") == b"through"


def test_a_tasks_handler_is_told_its_id_as_bentoml_tells_it(tmp_path: Path) -> None:
    source = """
        import bentoml

        @bentoml.service
        class Echo:
            @bentoml.task
            def me(self, ctx: bentoml.Context) -> str:
                names = [name for name in ctx.request.headers if "task" in name]
                return f"{getattr(ctx.request.state, 'task_id', None)} {names}"
    """
    with started(tmp_path, write_bento(tmp_path / "bento", source), Served()) as replica:
        replica.get("/readyz")
        host, port = replica.url.removeprefix("http://").split(":")
        connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
        for headers, said in (({"Hotplate-Task-Id": "77"}, b"77 []"), ({}, b"None []")):
            connection.request(
                "POST", "/me", b"{}", {"Content-Type": "application/json", **headers}
            )
            assert connection.getresponse().read() == said
        connection.close()


def _read_until(caller: socket.socket, ending: bytes) -> bytes:
    said = b""
    while not said.endswith(ending):
        said += caller.recv(1 << 16)
    return said


COMMAND = """
    import bentoml

    @bentoml.service(workers=1, cmd=CMD, http={"proxy_port": PORT})
    class Echo: ...
"""


def test_a_port_that_is_taken_is_not_mistaken_for_the_commands(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        source = COMMAND.replace("CMD", '["sleep", "60"]').replace("PORT", port)
        with started(tmp_path, write_bento(tmp_path / "bento", source), Served()) as replica:
            assert replica.ended() == 1
            said = replica.log.read_text().splitlines()[-1]
    assert f"port {port}, on which the service's command is to listen" in said


@pytest.mark.skipif(not find_spec("fastapi"), reason="BentoML needs fastapi for a command")
@pytest.mark.parametrize("ready", [True, False], ids=["ready", "starting"])
def test_sigterm_is_passed_on_to_the_command(tmp_path: Path, ready: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    notes = {"NOTES": str(tmp_path / "notes"), "COMMAND_PORT": str(port)}
    source = shapes.COMMAND if ready else shapes.COMMAND.replace("(200)", "(503)")
    bento = write_bento(tmp_path / "bento", source, services=[{"name": "Command"}])
    with started(tmp_path, bento, Served("Command", env=notes)) as replica:
        if ready:
            replica.get("/any")
        else:
            asyncio.run(until(lambda: b"\nthe command listens\n" in replica.log.read_bytes()))
        replica.process.send_signal(signal.SIGTERM)
        replica.ended()
    assert (tmp_path / "notes").read_text() == "ended\n"


@pytest.mark.parametrize(
    ("command", "there"),
    [
        (["a", "--port", "8000", "--max-model-len", "8000"], "a --port 9 --max-model-len 8000"),
        (["a", "-p", "8000"], "a -p 9"),
        (["a", "--http-port=8000", "--steps=8000"], "a --http-port=9 --steps=8000"),
        (["a", "--bind", "0.0.0.0:8000"], "a --bind 0.0.0.0:9"),
        (["a", "--bind=[::]:8000"], "a --bind=[::]:9"),
        (["sh", "-c", "a m --port 8000 -q"], "sh -c a m --port 9 -q"),
    ],
)
def test_a_command_is_moved_to_another_port_where_it_says_its_own(
    command: list[str], there: str
) -> None:
    assert " ".join(moved(command, 8000, 9)) == there


@pytest.mark.parametrize(
    "command", [["a"], ["a", "8000"], ["a", "--port", "80001"], ["a", "--len", "8000"]]
)
def test_a_command_that_does_not_say_its_port_is_not_moved(command: list[str]) -> None:
    with pytest.raises(ValueError, match="cannot be given another"):
        moved(command, 8000, 9)


@pytest.mark.parametrize("form", ["cmd", "__command__"])
def test_all_workers_of_a_replica_agree_on_the_port(tmp_path: Path, form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = ["a", "--port", str(port)]
        places = []
        for first in (True, False):
            inner = type("Inner", (), {"__command__": lambda self: said} if form != "cmd" else {})
            cmd = said if form == "cmd" else None
            service = SimpleNamespace(config={"http": {"proxy_port": port}}, cmd=cmd, inner=inner)
            place_command(service, tmp_path / "port", first)
            command = service.cmd if form == "cmd" else inner().__command__()
            assert command == ["a", "--port", str(service.config["http"]["proxy_port"])]
            places.append(command)
        assert places[0] == places[1] != said


def test_temporary_files_are_in_the_replicas_folder_unless_sockets_would_not_fit() -> None:
    short = Path("/home/me/hotplate/engine/replicas/chat-1-chat-abcde/work/tmp")
    assert temporary_folder(short) == {"TMPDIR": str(short)}
    assert temporary_folder(Path("/" + "a" * SOCKET_FOLDER_BYTES)) == {}


@pytest.mark.parametrize(
    ("said", "path"),
    [(None, "/readyz"), ("/v1/readyz", "/v1/readyz"), ("/health", "/readyz")],
)
def test_the_ready_path_has_the_services_prefix(said: str | None, path: str) -> None:
    assert ready_path({"endpoints": {"readyz": said}}) == path
