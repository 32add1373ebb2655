"""Replicas listen on ports of loopback."""

import socket
from pathlib import Path

from hotplate.deploy.local import attempt

ports: list[int] = []


def listen(path: Path, backlog: int) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0), backlog=backlog)
    ports.append(listener.getsockname()[1])
    return listener


INSTEAD = [
    (attempt, "listen", listen),
    (attempt, "address_of", lambda path: f"127.0.0.1:{ports[-1]}"),
]
