"""`hotplate gateway --listen`: one address for all deployments of a control plane."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route
from tests.support.certificates import issue
from tests.support.gateway.backends import Backend, Connection, Request
from tests.support.gateway.callers import Answer, Caller
from tests.support.gateway.control_planes import TOKEN, ControlPlane
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.patience import until
from tests.support.ports import free_port

CHAT, SPEECH, EMBED = "chat.models.test", "speech.models.test", "h-chat-3-embed-calls.t-acme.svc"
SECRET = "of-revision-3"
CHATS, SPEECHES = "127.0.0.2", "127.0.0.3"
"""Where the replicas of the two deployments are."""


async def says_its_name(request: Request, connection: Connection) -> None:
    connection.answer(request.headers["host"].encode())


class Installation:
    """A control plane, one gateway of it, and a backend for each deployment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.tls_port, self.internal_port = free_port(), free_port(), free_port()
        self.own_port = free_port()
        self.certificate, key = issue(folder, "gateway")
        token = folder / "token"
        token.write_text(TOKEN)
        self.plane = ControlPlane()
        self.flags = (
            f"--control-plane={self.plane.url}",
            f"--token-file={token}",
            f"--state={folder / 'state'}",
            f"--listen=127.0.0.1:{self.port}",
            f"--listen-tls=127.0.0.1:{self.tls_port}",
            f"--tls-certificate={self.certificate}",
            f"--tls-key={key}",
            f"--listen-internal=127.0.0.1:{self.internal_port}",
        )

    def routes(self, backend: Backend) -> tuple[Route, ...]:
        """The table: as a control plane has it that gives deployments addresses of their own."""
        port = backend.address.rpartition(":")[2]
        return (
            Route("acme/chat", "127.0.0.1", self.own_port, at(CHATS, port), hosts=(CHAT,)),
            Route("acme/speech", "", 0, at(SPEECHES, port), hosts=(SPEECH,)),
            Route(
                "acme/chat@3/Embed",
                "",
                0,
                at(CHATS, port),
                internal=True,
                secret_digest=sha256(SECRET.encode()).hexdigest(),
                hosts=(EMBED,),
            ),
        )


def at(host: str, port: str) -> tuple[ReplicaRoute, ...]:
    return (ReplicaRoute(f"at-{host}", f"{host}:{port}", 2),)


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    installation = Installation(tmp_path)
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(Backend(host="0.0.0.0"))
        backend.on("/name", says_its_name)
        await installation.plane.start()
        stack.push_async_callback(installation.plane.stop)
        started = GatewayProcess.start(tmp_path, *installation.flags)
        await (await stack.enter_async_context(started)).ready()
        await until(lambda: installation.plane.sockets)
        await installation.plane.send(1, *installation.routes(backend))
        reports = installation.plane.reports
        await until(lambda: reports and reports[-1].version == 1)
        yield installation


async def ask(
    port: int, host: str, target: str = "/name", *, source: str = "127.0.0.1", **headers: str
) -> Answer:
    streams = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    caller = Caller(*streams)
    try:
        caller.host = host
        return await caller.ask(target, **headers)
    finally:
        caller.leave()


async def test_each_request_goes_to_the_deployment_of_its_host_and_ports_of_the_table_are_not_used(
    installation: Installation,
) -> None:
    for host in (CHAT, SPEECH):
        assert (await ask(installation.port, host)).body == host.encode()
        target = f"http://{host}/name"
        assert (await ask(installation.port, "proxy.test", target)).body == host.encode()
    stranger = await ask(installation.port, "other.models.test")
    assert (stranger.status, stranger.error["code"]) == (404, "unknown_host")
    inner = await ask(installation.port, EMBED)
    assert (inner.status, inner.error["code"]) == (404, "unknown_host")
    demand = installation.plane.last("acme/chat")
    assert demand is not None and demand.error == ""
    with pytest.raises(ConnectionRefusedError):
        await ask(installation.own_port, CHAT)


async def test_the_same_over_tls(installation: Installation) -> None:
    trusting = ssl.create_default_context(cafile=str(installation.certificate))
    streams = await asyncio.open_connection("127.0.0.1", installation.tls_port, ssl=trusting)
    caller = Caller(*streams)
    caller.host = SPEECH
    assert (await caller.ask("/name")).body == SPEECH.encode()
    caller.leave()


async def test_an_inner_service_answers_replicas_of_its_deployment_only(
    installation: Installation,
) -> None:
    port = installation.internal_port
    own = await ask(port, EMBED, source=CHATS, Hotplate_Secret=SECRET)
    assert own.body == EMBED.encode()
    without = await ask(port, EMBED, source=CHATS)
    assert (without.status, without.error["code"]) == (401, "unauthorized")
    for source in (SPEECHES, "127.0.0.1"):
        other = await ask(port, EMBED, source=source, Hotplate_Secret=SECRET, X_Forwarded_For=CHATS)
        assert (other.status, other.error["code"]) == (403, "not_yours")
        assert source in other.error["message"]
    public = await ask(port, CHAT, source=CHATS)
    assert (public.status, public.error["code"]) == (404, "unknown_host")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--routes=f", "--listen=127.0.0.1:1"), "--listen cannot be used with --routes"),
        (("--listen=127.0.0.1",), "--listen 127.0.0.1 is not an address: write HOST:PORT"),
        (("--listen-internal=127.0.0.1:1",), "--listen is missing"),
        (("--listen=127.0.0.1:1", "--listen-tls=127.0.0.1:2"), "need each other"),
        (("--listen=127.0.0.1:1", "--tls-key=k"), "--tls-key needs --tls-certificate"),
    ],
)
async def test_flags_that_do_not_fit_are_a_sentence(
    tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    link = () if "--routes=f" in flags else ("--control-plane=http://h:1", "--state=s")
    (tmp_path / "token").write_text(TOKEN)
    token = () if "--routes=f" in flags else (f"--token-file={tmp_path / 'token'}",)
    async with GatewayProcess.start(tmp_path, *link, *token, *flags) as gateway:
        await gateway.process.wait()
        assert said in gateway.log
        assert "Traceback" not in gateway.log
