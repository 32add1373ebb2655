"""Who is taken for somebody at this machine."""

from __future__ import annotations

import pytest

from hotplate.platform.dashboard.visitors import is_from_this_machine

FIELDS = ("Host", "User-Agent", "Accept")


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("127.0.0.1", "localhost:7070"),
        ("127.0.0.1", "LOCALHOST"),
        ("127.8.0.1", "127.0.0.1:7070"),
        ("::1", "[::1]:7070"),
        ("::1", "[::1]"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
def test_who_asks_this_machine_from_this_machine_is_at_it(peer: str, host: str) -> None:
    assert is_from_this_machine(peer, [host], FIELDS)


@pytest.mark.parametrize(
    ("peer", "hosts"),
    [
        ("10.0.0.7", ["localhost:7070"]),
        ("", ["localhost"]),
        ("::ffff:10.0.0.7", ["127.0.0.1"]),
        ("127.0.0.1", ["evil.example:7070"]),
        ("127.0.0.1", ["localhost.evil.example"]),
        ("127.0.0.1", ["127.0.0.1.evil.example:7070"]),
        ("127.0.0.1", ["localhost:7070@evil.example"]),
        ("127.0.0.1", ["evil.example:localhost"]),
        ("127.0.0.1", ["[::1].evil.example"]),
        ("127.0.0.1", ["0.0.0.0:7070"]),
        ("127.0.0.1", ["192.168.0.5:7070"]),
        ("127.0.0.1", ["localhost:123456"]),
        ("127.0.0.1", [""]),
        ("127.0.0.1", []),
        ("127.0.0.1", ["localhost", "localhost"]),
        ("::1", ["::1"]),
    ],
)
def test_others_are_not_nor_are_pages_of_other_sites(peer: str, hosts: list[str]) -> None:
    assert not is_from_this_machine(peer, hosts, FIELDS)


@pytest.mark.parametrize(
    "field",
    ["X-Forwarded-For", "x-forwarded-host", "Forwarded", "Via", "X-Real-IP", "CF-Connecting-IP"],
)
def test_what_comes_through_a_proxy_may_come_from_anywhere(field: str) -> None:
    assert not is_from_this_machine("127.0.0.1", ["localhost"], (*FIELDS, field))
