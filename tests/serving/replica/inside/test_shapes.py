"""The replica's process around services that are more than handlers of one process."""

from __future__ import annotations

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import pytest

from hotplate.serving.replica.inside import methods
from hotplate.serving.replica.ready_path import ready_path
from hotplate.serving.replica.variables import SOCKET_FOLDER_BYTES, temporary_folder
from tests.support.patience import PATIENCE_S
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import started, workload


def test_a_deployments_threads_are_used_and_a_batch_of_one_is_explained(tmp_path: Path) -> None:
    source = """
        import threading, bentoml

        both = threading.Barrier(2, timeout=20)

        @bentoml.service(threads=1, traffic={"concurrency": 1})
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
        started(tmp_path, bento, workload(config_overrides={"threads": 2}), warm=True) as replica,
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
    with started(tmp_path, bento, workload(), warm=True) as replica:
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
    bento = write_bento(tmp_path / "bento", source)
    with started(tmp_path, bento, workload(), warm=True) as replica:
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


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("@bentoml.api\n    def f(self) -> int: return 1", ("", 0, False), id="sync"),
        pytest.param(
            "@bentoml.api\n    async def f(self) -> int: return 1",
            ("async methods", 0, False),
            id="async",
        ),
        pytest.param(
            "@bentoml.api(batchable=True, max_batch_size=7)\n"
            "    def f(self, x: list[int]) -> list[int]: return x",
            ("batchable methods", 7, False),
            id="batchable",
        ),
        pytest.param("@bentoml.task\n    def f(self) -> int: return 1", ("", 0, True), id="task"),
        pytest.param(
            "@bentoml.task\n    async def f(self) -> int: return 1\n"
            "    @bentoml.api\n    def g(self) -> int: return 1",
            ("", 0, False),
            id="an async task beside a sync method",
        ),
    ],
)
def test_a_replica_says_what_kinds_of_methods_it_has(
    tmp_path: Path, body: str, expected: tuple[str, int, bool]
) -> None:
    source = f"import bentoml\n\n@bentoml.service\nclass Echo:\n    {body}\n"
    bento = write_bento(tmp_path / "bento", source)
    with started(tmp_path, bento, workload(), warm=True) as replica:
        replica.get("/livez")
        said = methods.noted_in(replica.log.with_name(methods.FILE_NAME).read_bytes())
    learns, batch, only_tasks = expected
    assert said == {"concurrency": None, "learns": learns, "batch": batch, "only_tasks": only_tasks}


def test_a_concurrency_of_one_that_the_author_wrote_beside_tasks_is_told(tmp_path: Path) -> None:
    source = """
        import bentoml

        @bentoml.service(traffic={"concurrency": 1})
        class Echo:
            @bentoml.task
            def job(self) -> int:
                return 1
    """
    bento = write_bento(tmp_path / "bento", source)
    with started(tmp_path, bento, workload(), warm=True) as replica:
        replica.get("/livez")
        said = methods.noted_in(replica.log.with_name(methods.FILE_NAME).read_bytes())
    assert said is not None and said["concurrency"] == 1
