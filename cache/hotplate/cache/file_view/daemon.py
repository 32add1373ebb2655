"""The file view's daemon: a process of its own that answers the kernel.

    python -m hotplate.cache.file_view.daemon LINK MOUNT MANIFESTS SOURCE

`LINK` is the descriptor of a connection to the agent (`packet_link.py` documents its messages).
When that ends, however it ends, the mount goes and every reader gets an error. Nothing here ever
opens a file of its own mount: it would wait for itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotplate.cache.file_view import fuse as wire
from hotplate.cache.file_view.file_system import FileSystem
from hotplate.cache.file_view.fuse_device import FuseDevice
from hotplate.cache.file_view.mounting import mount, read_ahead, unmount

THREADS = 3
"""They only copy: two of them keep two cores busy, and the third takes new requests."""
PACKET_BYTES = 256 << 10
"""The longest message on the link."""


def main(arguments: list[str]) -> None:
    link = socket.socket(fileno=int(arguments[0]))
    folder, manifests, source = Path(arguments[1]), Path(arguments[2]), arguments[3]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is meant for the agent
    gc.set_threshold(200_000)  # the nodes of a tree are made at once, and stay

    def send(message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the agent has gone, which `_receive` notices too
            link.send(json.dumps(message).encode())

    try:
        device = FuseDevice()
        mount(device.fd, folder, source)
    except OSError as exc:
        send({"refused": exc.strerror})
        return
    try:
        read_ahead(folder, wire.READ_AHEAD_BYTES)
        view = FileSystem(device, manifests, send)
        for number in range(THREADS):
            _start(f"view-{number}", view.serve)
        _start("view-age", view.files.keep_ageing)
        _receive(link, view)
    finally:
        unmount(source)
        os._exit(0)  # which ends every reader's wait, and does not wait for our own threads


def _receive(link: socket.socket, view: FileSystem) -> None:
    """Takes the agent's messages until it is gone."""
    while True:
        data, fds, _, _ = socket.recv_fds(link, PACKET_BYTES, 1)
        if not data:
            return
        view.receive(json.loads(data), fds[0] if fds else None)


def _start(name: str, serve: Callable[[], None]) -> None:
    """Starts a thread that the daemon ends with, so that no reader waits for a dead thread."""

    def or_die() -> None:
        try:
            serve()
        finally:
            os._exit(1)

    threading.Thread(target=or_die, name=name, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
