"""`hotplate gateway --routes FILE`: the real command, without a control plane."""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from hotplate.platform.cli import main
from hotplate.serving.gateway import compiled
from tests.support.gateway.backends import Backend
from tests.support.gateway.callers import Caller
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.patience import until
from tests.support.ports import free_port


@pytest.fixture
def callers() -> Iterator[Callers]:
    callers = Callers()
    yield callers
    callers.leave()


class Callers:
    """Connections that do not outlive their test."""

    def __init__(self) -> None:
        self._open: list[Caller] = []

    async def to(self, port: int) -> Caller:
        caller = await Caller.to(port)
        self._open.append(caller)
        return caller

    def leave(self) -> None:
        for caller in self._open:
            caller.leave()


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    async with Backend() as backend:
        yield backend


def deployment(
    name: str, port: int, *backends: Backend, concurrency: int = 1, hosts: Sequence[str] = ()
) -> str:
    """With `hosts` the address is the file's: the first in it that has such."""
    listen = f'listen = "127.0.0.1:{port}"'
    lines = [f'[[deployment]]\nname = "{name}"', f"hosts = {list(hosts)}" if hosts else listen]
    if hosts:
        lines.insert(0, listen)
    for backend in backends:
        lines.append(f'[[deployment.replica]]\naddress = "{backend.address}"')
        lines.append(f"concurrency = {concurrency}")
    return "\n".join(lines) + "\n"


def replace_file(path: Path, content: str) -> None:
    """As an editor or a configuration system does it."""
    new = path.with_suffix(".new")
    new.write_text(content)
    new.replace(path)


async def test_it_serves_follows_the_file_and_cuts_nothing(
    backend: Backend, callers: Callers, tmp_path: Path
) -> None:
    chat, moved, tts, admin = (free_port() for _ in range(4))
    file = tmp_path / "routes.toml"
    head = f'admin = "127.0.0.1:{admin}"\n'
    file.write_text(head + deployment("chat", chat, backend) + deployment("tts", tts, backend))
    async with GatewayProcess.start(tmp_path, "--routes", str(file)) as gateway:
        assert await gateway.ready() == admin
        running, waiting, leaving = [await callers.to(port) for port in (chat, chat, tts)]
        running.send("/slow")
        leaving.send("/slow")
        await until(lambda: backend.running == 2)
        waiting.send("/x")
        status, queue = await gateway.admin("/deployments/chat/queue")
        assert (status, queue["queued"], queue["replicas"][0]["id"]) == (200, 1, backend.address)
        assert (await gateway.admin("/deployments/none/queue"))[0] == 404
        status, metrics = await gateway.admin("/metrics")
        assert 'hotplate_gateway_in_flight_requests{route="chat"} 1.0' in metrics

        # Broken: everything stays as it was, and says so.
        replace_file(file, head + deployment("chat", moved, backend) + "timeout = 3")
        await until(lambda: "no key is called 'timeout'" in gateway.log)
        _, health = await gateway.admin("/healthz")
        assert health["compiled"] == compiled.folder().is_dir()
        assert "no key is called 'timeout'" in health["error"]
        assert health["version"] == 1

        # Written in place: a deployment moves, gets a slot more, and another one goes.
        file.write_text(head + deployment("chat", moved, backend, concurrency=2))
        assert (await waiting.answer()).body == b"ok /x"  # its turn has come by the second slot
        await until(lambda: "is in force (version 2)" in gateway.log)
        _, health = await gateway.admin("/healthz")
        assert (health["error"], health["version"], health["errors"]) == ("", 2, {})
        for port in (chat, tts):
            with pytest.raises(OSError):
                await callers.to(port)
        assert (await (await callers.to(moved)).ask("/y")).status == 200
        backend.gate.set()
        assert (await running.answer()).body == b"slow"
        assert (await leaving.answer()).body == b"slow"

        # The file is gone: nobody is served any less for it.
        file.unlink()
        await until(lambda: "cannot be read: No such file" in gateway.log)
        assert (await (await callers.to(moved)).ask("/z")).status == 200
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.process.wait() == 0


async def test_a_taken_port_is_told_and_listened_on_once_it_is_free(
    backend: Backend, callers: Callers, tmp_path: Path
) -> None:
    file = tmp_path / "routes.toml"
    free = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(deployment("chat", free, backend) + deployment("tts", port, backend))
        async with GatewayProcess.start(tmp_path, "--routes", str(file)) as gateway:
            _, health = await gateway.admin("/healthz")
            assert f"127.0.0.1:{port} cannot be listened on" in health["errors"]["tts"]
            assert (await (await callers.to(free)).ask("/x")).status == 200
            taken.close()
            await until(lambda: "is listened on now" in gateway.log)
            assert (await (await callers.to(port)).ask("/y")).status == 200


def test_what_cannot_start_says_why_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, broken, only = (tmp_path / f"{name}.toml" for name in ("good", "broken", "only"))
    file.write_text(deployment("chat", free_port()))
    broken.write_text("[[deployment]]\nname = 3")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        only.write_text(deployment("chat", port))
        for flags, said in (
            (["--routes", str(tmp_path / "none.toml")], "none.toml cannot be read"),
            (["--routes", str(broken)], "name = 3 must be a name"),
            (["--routes", str(file), "--admin", f"127.0.0.1:{port}"], str(port)),
            (["--routes", str(only)], f"127.0.0.1:{port} cannot be listened on"),
            (["--routes", str(file), "--admin", "9900"], "--admin 9900"),
            (["--routes", str(file), "--state", "x"], "--state cannot be used with --routes"),
            (["--state", "x"], "--control-plane, --token-file is missing"),
        ):
            assert main(["gateway", *flags]) == 1
            output = capsys.readouterr().err
            assert output.startswith("hotplate: ") and said in output
            assert output.count("\n") == 1
