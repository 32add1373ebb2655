"""Replicas that are forks of one process, which has imported what every replica does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hotplate.serving.replica.inside.modules import BASICS
from tests.support.fork_servers import address_of

SERVER = Path(__file__).with_name("fork_server.py")
IMPORTED = (
    *BASICS,
    "_bentoml_impl.server.app",
    "_bentoml_impl.server.proxy",
    "opentelemetry.sdk.trace",
    "uvicorn.loops.uvloop",
    "uvicorn.main",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.wsproto_impl",
)
"""What BentoML has imported when a service without imports of its own is ready."""


class Fork:
    """A process of the server's, with what `subprocess.Popen` has for one of ours."""

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: str, fds: list[int]):
        """`fds` are the job, the log and the listening socket."""
        self.returncode: int | None = None
        _, _, module = argv
        asked = {"module": module, "env": dict(env), "folder": cwd}
        self._channel = socket.socket(socket.AF_UNIX)
        self._channel.connect(address_of(SERVER, *IMPORTED))
        socket.send_fds(self._channel, [json.dumps(asked).encode()], fds)
        self._said = self._channel.makefile("rb")
        self.pid = int(self._said.readline())

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                self.returncode = int(self._channel.recv(16))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from None
            self._said.close()
            self._channel.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)
