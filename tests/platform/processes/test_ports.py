from __future__ import annotations

import socket
from pathlib import Path

from hotplate.platform.processes.ports import free_port, is_free, obstacle


def test_a_port_in_use_is_not_free_and_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free("127.0.0.1", port)
        assert obstacle("127.0.0.1", port) == "Address already in use"
    assert is_free("127.0.0.1", port)


def test_an_address_of_another_machine_says_why() -> None:
    assert obstacle("192.0.2.1", free_port("127.0.0.1")) == "Cannot assign requested address"


def test_a_free_port_is_none_that_the_kernel_gives_to_an_outgoing_connection() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    found = {free_port("127.0.0.1") for _ in range(20)}
    assert len(found) > 1
    assert not any(first <= port <= last for port in found)
