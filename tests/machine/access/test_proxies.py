from __future__ import annotations

import pytest

from hotplate.machine.access.proxies import client_address, public_origin

PROXY = ("10.0.0.0/8",)


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "address"),
    [
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),  # no proxy of ours says so
        ("10.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.9, 198.51.100.7", "198.51.100.7"),  # the first is the caller's word
        ("10.0.0.1", "203.0.113.9, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("10.0.0.1", "198.51.100.7, somewhere", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("", "198.51.100.7", ""),
    ],
)
def test_only_a_proxy_of_ours_says_from_where(peer: str, forwarded_for: str, address: str) -> None:
    assert client_address(peer, forwarded_for, PROXY) == address


@pytest.mark.parametrize(
    ("peer", "proto", "public_url", "origin"),
    [
        ("192.0.2.1", "https", "", "http://a.example"),
        ("10.0.0.1", "https", "", "https://a.example"),
        ("10.0.0.1", "http, https", "", "https://a.example"),  # the first is the caller's word
        ("10.0.0.1", "javascript", "", "http://a.example"),
        ("192.0.2.1", "", "https://public.example/", "https://public.example"),
    ],
)
def test_how_the_world_calls_us(peer: str, proto: str, public_url: str, origin: str) -> None:
    assert public_origin("http", "a.example", peer, proto, PROXY, public_url) == origin
