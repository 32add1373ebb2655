"""The token of an agent that was given none."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import aiohttp
import pytest

from hotplate.cache import own_token
from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.control import is_same_machine
from hotplate.cache.origins.schemes import is_elsewhere


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "hotplate" / "agents"


def test_it_is_another_at_each_start_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    tokens = {own_token.make(tmp_path) for _ in range(3)}
    assert len(tokens) == 3 and (tmp_path / "token").read_text().strip() in tokens
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_a_file_that_somebody_has_open_or_linked_gets_no_token(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("the operator's")
    for name in ("token", ".token"):
        (tmp_path / name).symlink_to(victim)
    own_token.make(tmp_path)
    assert victim.read_text() == "the operator's" and not (tmp_path / "token").is_symlink()


def test_it_is_found_by_the_agents_address_while_that_runs(tmp_path: Path, home: Path) -> None:
    token = own_token.make(tmp_path)
    with own_token.found_at("127.0.0.1:7070", tmp_path):
        assert own_token.find("127.0.0.1:7070") == own_token.find("localhost:7070") == token
        assert own_token.find("127.0.0.1:7071") == own_token.find("10.0.0.5:7070") == ""
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert own_token.find("127.0.0.1:7070") == ""


def test_one_that_took_the_address_over_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with own_token.found_at("127.0.0.1:7070", tmp_path):
        token = own_token.make(tmp_path / "other")
        after = own_token.found_at("127.0.0.1:7070", tmp_path / "other")
        after.__enter__()
    assert own_token.find("127.0.0.1:7070") == token
    after.__exit__(None, None, None)


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path, home: Path) -> None:
    own_token.make(tmp_path)
    with own_token.found_at("127.0.0.1:7070", tmp_path):
        home.chmod(0o777)
        assert own_token.find("127.0.0.1:7070") == ""


@pytest.mark.parametrize("address", ["../x:1", "a/b:1", "", ":", "x" * 300 + ":1", "a\0b:1"])
def test_any_address_can_be_asked_for(address: str) -> None:
    assert own_token.find(address) == ""


def test_which_requests_come_from_the_same_machine() -> None:
    assert is_same_machine("127.0.0.1", "127.0.0.2") and is_same_machine("10.0.0.5", "10.0.0.5")
    assert is_same_machine("::1", "::1")
    assert not is_same_machine("10.0.0.6", "10.0.0.5") and not is_same_machine("8.8.8.8", "::1")


def test_what_lies_elsewhere_for_certain() -> None:
    assert all(map(is_elsewhere, ("https://h/x", "s3://b/x", "hf://o/n", "gs://b/x")))
    here = ("/etc/shadow", "file:///x", "local:///x", "zip://a::file:///b", "s3://b::file:///x")
    assert not any(map(is_elsewhere, (*here, "simplecache::file:///x", "dir::/x", "reference://")))


@pytest.mark.parametrize("name", ["pulls?url=", "held?name="])
async def test_the_clusters_token_reads_no_files_of_other_machines(
    tmp_path: Path, name: str
) -> None:
    """A connection from an address that is not the one it comes to may be another machine's."""
    (tmp_path / "secret").write_text("this machine's")
    there = _own_address()
    async with run(AgentSettings(tmp_path / "data", host="0.0.0.0", token="t")) as url:
        port = url.rpartition(":")[2]
        headers = {"Authorization": "Bearer t"}
        for caller, statuses in (("127.0.0.1", {401}), (there, {200})):
            connector = aiohttp.TCPConnector(local_addr=(caller, 0))
            async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
                for file in (f"file://{tmp_path}/secret", f"{tmp_path}/secret"):
                    asked = f"http://{there}:{port}/v1/{name}{file}"
                    async with session.put(asked) as answer:
                        assert answer.status in statuses, await answer.text()


async def test_the_clusters_token_puts_no_socket_on_other_machines(tmp_path: Path) -> None:
    there = _own_address()
    async with run(AgentSettings(tmp_path / "data", host="0.0.0.0", token="t")) as url:
        asked = f"http://{there}:{url.rpartition(':')[2]}/v1/doors?path={tmp_path}/a.sock"
        for caller, status in (("127.0.0.1", 401), (there, 200)):
            connector = aiohttp.TCPConnector(local_addr=(caller, 0))
            headers = {"Authorization": "Bearer t"}
            async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
                assert (await session.put(asked)).status == status
            assert (tmp_path / "a.sock").exists() is (status == 200)


@pytest.mark.parametrize(
    ("method", "asked", "body"),
    [
        ("PUT", "doors?path=/a%00b", b""),
        ("PUT", "pulls?url=/a%00b", b""),
        ("POST", "peers", b"[" * 100_000),
    ],
)
async def test_what_cannot_be_read_is_refused(
    tmp_path: Path, method: str, asked: str, body: bytes
) -> None:
    async with (
        run(AgentSettings(tmp_path)) as url,
        aiohttp.request(method, f"{url}/v1/{asked}", data=body) as answer,
    ):
        assert answer.status == 400, await answer.text()


def _own_address() -> str:
    """An address of this machine that is not a loopback one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has loopback addresses only")
        return str(probe.getsockname()[0])
