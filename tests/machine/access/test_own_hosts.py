"""Which names in `Host` are a server's own, in every spelling, and that the others get nothing."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from hotplate.cache.agent import AgentSettings, run
from hotplate.machine.access.own_hosts import OwnHosts, is_host

HERE = OwnHosts()
NAMED = OwnHosts("10.0.0.5", ("Models.Example.com", "box.lan:8443", "2001:DB8::7"))
EVERYWHERE = OwnHosts("0.0.0.0", ("models.example.com",))
CHUNK = f"/v1/chunks/{'0' * 64}/0"


@pytest.mark.parametrize(
    "field",
    [
        "localhost",
        "LOCALHOST:7070",
        "localhost.",
        "localhost.:7070",
        "localhost:",
        "chat.localhost:7100",
        "127.0.0.1",
        "127.0.0.1:7070",
        "127.8.9.10:1",
        "[::1]",
        "[::1]:7070",
        "[0:0:0:0:0:0:0:1]:7070",
        "[::ffff:127.0.0.1]:7070",
    ],
)
def test_loopback_names_are_every_servers_own(field: str) -> None:
    for own in (HERE, NAMED, EVERYWHERE):
        assert own.know(field)


@pytest.mark.parametrize(
    "field",
    [
        "",
        " ",
        "evil.example",
        "evil.example:7070",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "notlocalhost",
        ".",
        "localhost..",
        "localhost@evil.example",
        "evil.example@localhost",
        "localhost:7070@evil.example",
        "localhost,evil.example",
        "localhost, localhost",
        "localhost/evil",
        "evil.example#localhost",
        "evil.example?localhost",
        "localhost:http",
        "localhost:123456",
        "localhost:80:80",
        "[::1",
        "::1",
        "[::1]x",
        "[127.0.0.1]",
        "[localhost]",
        "[::1%25eth0]",
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "localhost\x00",
        "localhost\n",
        "\udcfflocalhost",
    ],
)
def test_what_only_looks_like_one_is_foreign(field: str) -> None:
    for own in (HERE, NAMED, EVERYWHERE):
        assert not own.know(field)


@pytest.mark.parametrize(
    ("field", "here", "named", "everywhere"),
    [
        ("10.0.0.5:7070", False, True, True),
        ("10.0.0.6", False, False, True),
        ("203.0.113.9:443", False, False, True),
        ("[2001:db8:0::7]:1", False, True, True),
        ("[2001:db8::8]", False, False, True),
        ("0.0.0.0", False, False, True),
        ("models.example.com", False, True, True),
        ("MODELS.example.com.:8080", False, True, True),
        ("box.lan", False, True, False),
        ("box.lan:7070", False, True, False),
        ("example.com", False, False, False),
    ],
)
def test_others_are_own_where_a_setting_says_so(
    field: str, here: bool, named: bool, everywhere: bool
) -> None:
    assert [own.know(field) for own in (HERE, NAMED, EVERYWHERE)] == [here, named, everywhere]


def test_host_may_be_missing_in_http_1_0_only_and_every_one_given_counts() -> None:
    assert HERE.refusal([], http10=True) == ""
    assert "missing" in HERE.refusal([])
    assert HERE.refusal(["localhost", "127.0.0.1"]) == ""
    assert "'evil.example'" in HERE.refusal(["localhost", "evil.example"])
    assert "'evil.example'" in HERE.refusal(["evil.example", "localhost"])


def test_only_names_and_addresses_can_be_set() -> None:
    for good in ("models.example.com", "box:8443", "10.0.0.5", "::1", "[::1]:80"):
        assert is_host(good)
    for bad in ("", "http://models.example.com", "a b", "*.example.com", "u@h", "h/x"):
        assert not is_host(bad)


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/v1/status", CHUNK])
async def test_an_agent_answers_a_foreign_host_421(tmp_path: Path, path: str) -> None:
    settings = AgentSettings(tmp_path / "data", hosts=("agent.example",))
    async with run(settings) as url, aiohttp.ClientSession() as session:
        for host, foreign in (
            ("evil.example", True),
            ("localhost@evil.example", True),
            ("agent.example:7070", False),
            ("localhost", False),
        ):
            async with session.get(f"{url}{path}", headers={"Host": host}) as answer:
                assert (answer.status == 421) == foreign, (host, answer.status)


@pytest.mark.parametrize("path", ["/healthz", "/v1/held/verify", "/v1/status", CHUNK])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_agent_does_nothing_for_a_page_of_another_site(
    tmp_path: Path, path: str, method: str
) -> None:
    async with run(AgentSettings(tmp_path / "data")) as url, aiohttp.ClientSession() as session:
        for headers in (
            {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        ):
            async with session.request(method, f"{url}{path}", headers=headers) as answer:
                assert answer.status == 403, headers
