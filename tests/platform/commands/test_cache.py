"""`hotplate cache …` and the agent's flags, as a person types them."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from hotplate.cache.agent import AgentSettings, run
from hotplate.platform.cli import main
from tests.support.cache.fakes import random_bytes
from tests.support.patience import PATIENCE_S

CONTENT = random_bytes(100_000, 41)


async def cache(*words: str) -> int:
    return await asyncio.to_thread(main, ["cache", *words])


async def test_a_folder_is_pulled_listed_verified_warmed_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, token_file = tmp_path / "model", tmp_path / "token"
    model.mkdir()
    (model / "a.bin").write_bytes(CONTENT)
    token_file.write_text("secret\n")
    monkeypatch.chdir(tmp_path)
    async with run(AgentSettings(tmp_path / "data", token="secret")) as url:
        flags = ("--agent", url.removeprefix("http://"), "--token-file", str(token_file))
        assert await cache("pull", "model", *flags, "--json") == 0
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert last.keys() == {"bytes", "seconds", "from_origin_bytes", "from_peers_bytes"}
        assert last["bytes"] == last["from_origin_bytes"] == len(CONTENT)
        assert await cache("pull", "model", *flags) == 0
        assert "100.0 kB in" in capsys.readouterr().out
        assert await cache("ls", *flags) == 0
        assert str(model) in capsys.readouterr().out
        assert await cache("verify", *flags) == 0
        assert await cache("warm", str(model), *flags) == 0
        assert "100.0 kB are in memory" in capsys.readouterr().out
        assert await cache("rm", str(model), *flags, "--json") == 0
        assert json.loads(capsys.readouterr().out)["bytes"] == 2 * len(CONTENT)


async def test_a_failure_is_one_sentence_and_a_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run(AgentSettings(tmp_path / "data", token="secret")) as url:
        monkeypatch.setenv("HOTPLATE_AGENT", url.removeprefix("http://"))
        assert await cache("pull", "file:///nowhere", "--json") == 1
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1
        assert "the agent needs its token" in said.err
    monkeypatch.delenv("HOTPLATE_AGENT")
    assert await cache("ls") == 1
    assert "--agent HOST:PORT is missing" in capsys.readouterr().err


async def test_an_agent_without_a_token_file_is_its_users_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is on the machine would read any file of the agent's user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "secret").write_bytes(CONTENT)
    file = f"file://{tmp_path}/secret"
    program = [sys.executable, "-m", "hotplate.platform.cli", "agent", "--mount", "no"]
    agent = await asyncio.create_subprocess_exec(
        *(*program, "--data", str(tmp_path / "data"), "--port", "0", "--memory", "64MB"),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert agent.stderr is not None
        said = await asyncio.wait_for(agent.stderr.readuntil(b"ready: "), PATIENCE_S)
        said = await asyncio.wait_for(agent.stderr.readline(), PATIENCE_S)
        url = re.findall(r"http://\S+:\d+", said.decode())[0]
        async with aiohttp.ClientSession(url) as stranger:
            for method, path in ROUTES:
                async with stranger.request(method, path, params={"url": file}) as answer:
                    assert answer.status == 401, path
            async with stranger.get("/healthz") as answer:
                assert answer.status == 200
        address = url.removeprefix("http://")
        assert await cache("pull", file, "--agent", address, "--json") == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["bytes"] == len(CONTENT)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user's"))
        assert await cache("ls", "--agent", address) == 1
        assert "the agent needs its token" in capsys.readouterr().err
        token = str(tmp_path / "data" / "token")
        assert await cache("ls", "--agent", address, "--token-file", token) == 0
    finally:
        agent.terminate()
        await agent.wait()


ROUTES = [
    *(("GET", f"/v1/{name}") for name in ("status", "troubles", "trees", "pulls", "locations")),
    *(("GET", f"/v1/trees/{'0' * 64}"), ("PUT", f"/v1/trees/{'0' * 64}"), ("GET", "/v1/held")),
    *(("PUT", f"/v1/{name}") for name in ("pulls", "doors", "held")),
    *(("DELETE", "/v1/held"), ("DELETE", f"/v1/trees/{'0' * 64}"), ("POST", "/v1/held/verify")),
    *(("POST", "/v1/peers"), ("GET", f"/v1/chunks/{'0' * 64}/0"), ("GET", "/nothing")),
]


KNOWN = ("--token-file", __file__)
"""A token; what it says matters to nobody."""


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--memory", "2 parsecs"), "--memory '2 parsecs' is not a size: write bytes, or KB MB"),
        (("--disk", "-1"), "--disk '-1' is not a size"),
        (("--host", "0.0.0.0"), "0.0.0.0 can be reached from other machines"),
        (("--peers", "nonsense"), "--peers nonsense is not an address"),
        (("--peers", "127.0.0.1:1"), "--token-file is missing: agents prove themselves with the"),
        (("--memory", "99999999999999999999GB"), "is more than any machine has: write less than"),
        (("--port", "99999"), "--port 99999 is not a port: write 1 to 65535, or 0 = any"),
        (("--host", "nowhere.invalid"), "choose another --host"),
        (("--origin", "foo://x"), "origin foo://x cannot be read: Protocol not known: foo"),
        (("--kubelet", "/tmp"), "--token-file is missing: volumes are given for tickets"),
        (("--kubelet", "here", *KNOWN), "--kubelet here is no absolute path of a folder"),
        (("--kubelet", "/tmp", *KNOWN, "--mount", "/x"), "--mount and --kubelet exclude each"),
        (("--token-file", "/dev/null"), "--token-file /dev/null holds no token: write one word"),
    ],
)
def test_an_agent_that_cannot_start_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], sentence: str
) -> None:
    assert main(["agent", "--data", str(tmp_path), "--port", "0", *flags]) == 1
    assert sentence in capsys.readouterr().err


def test_an_agent_whose_port_is_taken_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["agent", "--data", str(tmp_path), "--port", port]) == 1
    said = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1 cannot be had (Address already in use); choose" in said


def test_a_token_that_no_header_can_carry_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in (b"\xff\xfe", b"two\nlines\n", b"\n"):
        (tmp_path / "token").write_bytes(content)
        flags = ["--agent", "127.0.0.1:1", "--token-file", str(tmp_path / "token")]
        assert main(["cache", "ls", *flags]) == 1
        assert "holds no token: write one word of ASCII" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["pull", "rm", "warm"])
async def test_an_empty_name_is_not_the_folder_that_one_is_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert await cache(action, "", "--agent", "127.0.0.1:1") == 1
    assert "the name is empty: give a URL, a path or a digest" in capsys.readouterr().err


def test_an_agent_is_named_by_host_and_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "ls", "--agent", "localhost"]) == 1
    assert "--agent localhost is not an address" in capsys.readouterr().err


async def test_an_output_without_room_is_one_sentence(tmp_path: Path) -> None:
    async with run(AgentSettings(tmp_path / "data")) as url:
        listing = await asyncio.create_subprocess_shell(
            f"{sys.executable} -m hotplate.platform.cli cache ls --agent {url[7:]} > /dev/full",
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await asyncio.wait_for(listing.communicate(), PATIENCE_S)
    assert said == b"hotplate: [Errno 28] No space left on device\n" and listing.returncode == 1
