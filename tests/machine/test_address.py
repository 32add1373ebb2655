"""How addresses are read and written."""

from __future__ import annotations

import re

import pytest

from hotplate.machine.address import Address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("localhost:0", "localhost", 0),
        ("[::1]:65535", "::1", 65535),
    ],
)
def test_an_address_is_written_as_it_was_read(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert address == (host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "host", ":80", "host:", "host:-1", "host:65536", "host:1x", "::1:80", "[::1]"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        Address.parse(text)
