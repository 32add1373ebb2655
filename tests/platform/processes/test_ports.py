from __future__ import annotations

import socket

from hotplate.platform.processes.ports import free_port, is_free, obstacle


def test_a_port_in_use_is_not_free_and_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free("127.0.0.1", port)
        assert obstacle("127.0.0.1", port) == "Address already in use"
    assert is_free("127.0.0.1", port)


def test_an_address_of_another_machine_says_why() -> None:
    assert obstacle("192.0.2.1", free_port("127.0.0.1")) == "Cannot assign requested address"
