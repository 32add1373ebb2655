"""Replicas of services with a command: each has its program, whatever port that was written for."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from aiohttp import ClientSession

from hotplate.deploy.workload import Workload
from hotplate.serving.replica.inside.command.claimed_port import ClaimedPort, claim_any
from hotplate.serving.replica.inside.command.listen_port import moved, place_command
from tests.support import ports
from tests.support.patience import until
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import Replica, started, workload
from tests.support.services import shapes

# As BentoML is imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
needs_fastapi = pytest.mark.skipif(
    not find_spec("fastapi"), reason="BentoML needs fastapi for a command"
)


@pytest.mark.parametrize(
    ("command", "there"),
    [
        (["a", "--port", "8000", "--max-model-len", "8000"], "a --port 9 --max-model-len 8000"),
        (["a", "--port=8000", "--len=8000", "--support=8000"],
         "a --port=9 --len=8000 --support=8000"),
        (["a", "-p", "8000"], "a -p 9"),
        (["docker", "run", "-p", "8000:8000"], "docker run -p 9:8000"),
        (["a", "--proxy-port", "8000"], "a --proxy-port 9"),
        (["a", "--http-port=8000", "--steps=8000"], "a --http-port=9 --steps=8000"),
        (["a", "--server.port", "8000", "--serverPort=8000"], "a --server.port 9 --serverPort=9"),
        (["env", "PORT=8000", "MAX_LEN=8000", "a"], "env PORT=9 MAX_LEN=8000 a"),
        (["a", "--bind", "0.0.0.0:8000"], "a --bind 0.0.0.0:9"),
        (["a", "-b", ":8000", "--peer", "other:8000"], "a -b :9 --peer other:8000"),
        (["a", "--bind=[::]:8000"], "a --bind=[::]:9"),
        (["sh", "-c", "a m --port 8000 -q"], "sh -c a m --port 9 -q"),
        (["bash", "-lc", "PORT=8000 a & wget 'http://localhost:8000/x'"],
         "bash -lc PORT=9 a & wget 'http://localhost:9/x'"),
        (["python", "-m", "http.server", "8000", "-d", "/x"], "python -m http.server 9 -d /x"),
        (["sh", "-c", "exec python -m http.server 8000"], "sh -c exec python -m http.server 9"),
        (["python", "-m", "http.server", "3000"], "python -m http.server 9"),
        (["vllm", "serve", "m", "--port", "3000"], "vllm serve m --port 9"),
    ],
)  # fmt: skip
def test_a_command_is_moved_to_another_port_where_it_says_its_own(
    command: list[str], there: str
) -> None:
    result = moved(command, 8000, 9)
    assert result is not None
    assert len(result) == len(command)
    assert " ".join(result) == there


@pytest.mark.parametrize(
    "command",
    [
        ["a"],
        ["a", "--port", "80001"],
        ["a", "--port", "8000-8010"],
        ["a", "--len", "8000"],
        ["a", "--report", "8000"],
        ["a", "8000", "8000"],
        ["a", "3000"],
        ["a", "--peer", "http://other:8000"],
        ["python", "-c", "time.sleep( 8000 )"],
        ["sh", "-c", "serve ${PORT:-8000}"],
    ],
)
def test_a_command_that_does_not_clearly_say_its_port_is_not_moved(command: list[str]) -> None:
    assert moved(command, 8000, 9) is None


COMMAND = """
import os, bentoml

PROGRAM = '''
import http.server, json, os, sys, time, urllib.request

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = {"pid": os.getpid(), "me": os.environ.get("ME"), "argv": sys.argv[1:]}
        try:
            if self.path.startswith("/ask?"):
                answer = urllib.request.urlopen(self.path[5:], timeout=20)
                said["answer"] = answer.read().decode()
        except OSError as error:
            said["answer"] = str(error)
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

port = int(sys.argv[-1]) if len(sys.argv) > 1 else int(os.environ["WRITTEN"])
http.server.ThreadingHTTPServer(("", port), Answers).serve_forever()
'''
CMD = ["python", "-c", PROGRAM] + os.environ.get("ARGUMENTS", "").split()

@bentoml.service(cmd=CMD, http={"proxy_port": int(os.environ["WRITTEN"])})
class Echo:
    pass
"""


@pytest.fixture
def written() -> int:
    """The port that a program was written for."""
    return ports.free_port()


def _bento(folder: Path, source: str = COMMAND) -> Path:
    return write_bento(folder / "bento", source)


def _ask(replica: Replica, path: str = "/any") -> Any:
    return json.loads(replica.get(path))


@needs_fastapi
@pytest.mark.parametrize(
    ("arguments", "taken"),
    [("", True), ("", False), ("--port WRITTEN", True), ("WRITTEN", True)],
    ids=["nowhere", "nowhere, free", "as an option", "alone"],
)
def test_replicas_that_start_together_each_answer_by_their_own_program(
    tmp_path: Path, written: int, arguments: str, taken: bool
) -> None:
    bento, port = _bento(tmp_path), str(written)
    said = arguments.replace("WRITTEN", port)

    def served(me: int) -> Workload:
        env = {"WRITTEN": port, "ME": str(me), "ARGUMENTS": said}
        return workload(config={"workers": 1}, env=env)

    with ExitStack() as ends:
        if taken:
            ends.enter_context(socket.create_server(("127.0.0.1", written)))
        replicas = [
            ends.enter_context(started(tmp_path, bento, served(me), warm=True)) for me in range(3)
        ]
        with ThreadPoolExecutor(9) as pool:
            answers = list(pool.map(_ask, replicas * 3))
    assert [answer["me"] for answer in answers] == ["0", "1", "2"] * 3
    assert len({answer["pid"] for answer in answers}) == 3
    assert all(port not in answer["argv"] for answer in answers)


@needs_fastapi
def test_a_program_in_a_network_of_its_own_reaches_what_it_must(
    tmp_path: Path, written: int
) -> None:
    class Says(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"{self.request.getsockname()[0]} {self.path}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    bento = _bento(tmp_path)
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Says) as named,
        ThreadingHTTPServer(("127.0.0.1", 0), Says) as unnamed,
        ThreadingHTTPServer(("127.0.0.2", 0), Says) as elsewhere,
        ThreadPoolExecutor(3) as pool,
    ):
        for server in (named, unnamed, elsewhere):
            pool.submit(server.serve_forever)
        url = f"http://127.0.0.1:{named.server_port}"
        env = {"WRITTEN": str(written), "DATABASE": f"{url}/table"}
        served = workload(config={"workers": 1}, env=env)
        with started(tmp_path, bento, served, warm=True) as replica:
            asked = {
                "named": _ask(replica, f"/ask?{url}/a"),
                "proxied": _ask(replica, f"/ask?http://127.0.0.2:{elsewhere.server_port}/b?c=d"),
                "unnamed": _ask(replica, f"/ask?http://127.0.0.1:{unnamed.server_port}/e"),
            }
            said = replica.log.read_text()
            port = (replica.log.parent / "command-port").read_text()
            address = replica.log.with_name(f"command-{port}")
            assert address.is_socket()
            assert address.stat().st_mode & 0o777 == 0o600
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", int(port)))
        for server in (named, unnamed, elsewhere):
            server.shutdown()
    assert asked["named"]["answer"] == "127.0.0.1 /a"
    assert asked["proxied"]["answer"] == "127.0.0.2 /b?c=d"
    assert "refused" in asked["unnamed"]["answer"]
    assert f"The command does not say its port {written}" in said


NO_NAMESPACES = (
    "unshare", "--user", "--map-root-user", "--kill-child", "sh", "-c",
    "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$@\"", "sh",
)  # fmt: skip


@needs_fastapi
def test_without_namespaces_one_replica_has_the_authors_port_and_the_next_says_why_not(
    tmp_path: Path, written: int
) -> None:
    bento = _bento(tmp_path)
    served = workload(config={"workers": 1}, env={"WRITTEN": str(written), "ME": "first"})
    with (
        started(tmp_path, bento, served, NO_NAMESPACES) as one,
        started(tmp_path, bento, served, NO_NAMESPACES) as other,
    ):
        asyncio.run(until(lambda: {one.process.poll(), other.process.poll()} != {None}))
        lives, ended = (one, other) if one.process.poll() is None else (other, one)
        assert _ask(lives)["me"] == "first"
        said = ended.log.read_text().splitlines()[-1]
    assert f"port {written}, on which the service's command is to listen" in said
    assert "nor can it have a network of its own here (No space left on device)" in said


@needs_fastapi
@pytest.mark.parametrize("ready", [True, False], ids=["ready", "starting"])
@pytest.mark.parametrize("written_down", [True, False], ids=["said", "not said"])
def test_sigterm_is_passed_on_to_the_command(
    tmp_path: Path, written: int, ready: bool, written_down: bool
) -> None:
    notes = {"NOTES": str(tmp_path / "notes"), "COMMAND_PORT": str(written)}
    source = shapes.COMMAND if ready else shapes.COMMAND.replace("(200)", "(503)")
    if not written_down:
        source = source.replace('"--port", str(PORT)', '"--any", str(PORT)')
    bento = write_bento(tmp_path / "bento", source, services=[{"name": "Command"}])
    with started(tmp_path, bento, workload("Command", env=notes), warm=True) as replica:
        if ready:
            replica.get("/any")
        else:
            asyncio.run(until(lambda: b"\nthe command listens\n" in replica.log.read_bytes()))
        replica.process.send_signal(signal.SIGTERM)
        replica.ended()
        said = replica.log.read_text()
        assert ("in a network of its own" in said) != written_down
        assert "has ended" not in said
    assert (tmp_path / "notes").read_text() == "ended\n"


@needs_fastapi
def test_a_replica_ends_with_the_network_of_its_program(tmp_path: Path, written: int) -> None:
    served = workload(config={"workers": 1}, env={"WRITTEN": str(written)})
    with started(tmp_path, _bento(tmp_path), served, warm=True) as replica:
        _ask(replica)
        makers = [
            child
            for child in psutil.Process(replica.process.pid).children()
            if "make" in child.cmdline()
        ]
        makers[0].kill()
        assert replica.ended() == 1
        assert "The network of the service's command has ended." in replica.log.read_text()


def placed(service: Any, note: Path, first: bool = True) -> tuple[int, list[str]]:
    """The port to which BentoML is sent, and what it starts."""
    place_command(service, note, first, (), lambda: None)
    inner = service.inner
    command = inner().__command__() if hasattr(inner, "__command__") else service.cmd
    return service.config["http"]["proxy_port"], command


def service(command: list[str], written: int, form: str = "cmd", **config: Any) -> Any:
    inner = type("Inner", (), {} if form == "cmd" else {"__command__": lambda self: command})
    cmd = command if form == "cmd" else None
    return SimpleNamespace(config={"http": {"proxy_port": written}, **config}, cmd=cmd, inner=inner)


@pytest.mark.parametrize("form", ["cmd", "__command__"])
def test_all_workers_of_a_replica_agree_on_the_port(
    tmp_path: Path, written: int, form: str
) -> None:
    note, said = tmp_path / "port", ["a", "--port", str(written)]
    port, command = placed(service(said, written, form), note)
    assert command == ["a", "--port", str(port)]
    assert port != written
    assert placed(service(said, written, form), note, first=False)[0] == port
    others = service(said, written, form, replicate_process=True)
    assert placed(others, note, first=False)[0] not in (port, written)


def test_bentoml_expands_the_variables_of_a_command_once(
    tmp_path: Path, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bentoml._internal.utils import expand_envs

    monkeypatch.setenv("PORT", str(written))
    said = ["sh", "-c", "x=1; exec a --port $PORT --id $$x"]
    port, command = placed(service(said, written), tmp_path / "port")
    assert [expand_envs(each) for each in command] == [
        "sh", "-c", f"x=1; exec a --port {port} --id $x"
    ]  # fmt: skip


@needs_fastapi
async def test_a_client_that_the_service_brings_is_led_to_its_own_program(
    tmp_path: Path, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from _bentoml_impl.server import proxy

    async with (
        ClientSession(f"http://localhost:{written}/v1/") as ours,
        ClientSession(f"http://elsewhere:{written}") as another,
    ):
        for client in (ours, another):
            bearer = SimpleNamespace(client=client)
            monkeypatch.setattr(proxy, "get_current_service", lambda bearer=bearer: bearer)
            port, _ = placed(service(["a", "-p", str(written)], written), tmp_path / "port")
            assert proxy.get_current_service() is bearer
            expected = port if client is ours else written
            assert client._base_url is not None
            assert client._base_url.port == expected


def test_a_port_is_claimed_once() -> None:
    claim = claim_any()
    with pytest.raises(OSError, match="in use"):
        ClaimedPort(claim.port)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        ClaimedPort(taken.getsockname()[1])
    claim.close()
    ClaimedPort(claim.port).close()


def test_of_many_that_claim_at_once_each_gets_another_port() -> None:
    with ThreadPoolExecutor(16) as pool:
        claims = list(pool.map(lambda _: claim_any(), range(200)))
    assert len({claim.port for claim in claims}) == 200
    for claim in claims:
        claim.close()


def test_claimed_ports_are_released_in_order_when_the_process_ends(tmp_path: Path) -> None:
    """A socket that is left to the collector is a warning, and others' claims wait for it."""
    program = f"""
from pathlib import Path
from types import SimpleNamespace
from hotplate.serving.replica.inside.command.listen_port import place_command

service = SimpleNamespace(config={{}}, cmd=["program", "--port", "8000"], inner=object)
place_command(service, Path({str(tmp_path / "note")!r}), True, (), lambda: None)
"""
    command = [sys.executable, "-W", "default::ResourceWarning", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (tmp_path / "note").read_text().isdecimal()
    assert "ResourceWarning" not in ended.stderr
