"""A standby's process, started and told as an engine does it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hotplate.deploy.local.runtime import Command, Warm
from tests.support.patience import PATIENCE_S


def begun(
    warm: Warm, argv: Sequence[str], channel_variable: str, log_path: Path, **env: str
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A warm process that was told of its birth, in the folder of its log; and its channel."""
    folder = log_path.parent
    ours, theirs = socket.socketpair()
    with theirs, log_path.open("wb") as log:
        process = subprocess.Popen(
            argv,
            env={
                **warm.env,
                channel_variable: str(theirs.fileno()),
                "CUDA_VISIBLE_DEVICES": "",
                **env,
            },
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(json.dumps({**warm.job, "folder": str(folder)}).encode())
    return process, ours


class Standby:
    def __init__(self, warm: Warm, folder: Path) -> None:
        folder.mkdir()
        self._folder, self._takes_along = folder, warm.takes_along
        self.log = folder / "log"
        self.process, self.channel = begun(warm, warm.argv, "HOTPLATE_STANDBY_FD", self.log)
        self.channel.settimeout(PATIENCE_S)
        self._said = self.channel.makefile("rb")

    def says(self) -> Any:
        line = self._said.readline()
        assert line, self.log.read_text()
        return json.loads(line)

    def become(self, command: Command, log_path: Path, **env: str) -> tuple[str, Any]:
        """The address at which it listens, and its answer."""
        more = {"HOTPLATE_REPLICA_DIR": str(log_path.parent), "CUDA_VISIBLE_DEVICES": "", **env}
        job = {"env": {**command.env, **more}, "job": command.job}
        told = os.memfd_create("job")
        os.write(told, json.dumps(job).encode())
        with (
            socket.create_server(("127.0.0.1", 0), backlog=128) as listener,
            log_path.open("ab") as log,
        ):
            fds = [told, listener.fileno(), log.fileno()]
            socket.send_fds(self.channel, [b"j"], fds)
            os.close(told)
            url, answer = "http://{}:{}".format(*listener.getsockname()), self.says()
        for source, target in self._takes_along.items():
            for file in (self._folder / source).iterdir():
                file.rename(log_path.parent / target / file.name)
        return url, answer


@contextmanager
def standby(warm: Warm, folder: Path) -> Iterator[Standby]:
    """One that is killed at the end."""
    process = Standby(warm, folder)
    try:
        yield process
    finally:
        process.channel.close()
        if process.process.poll() is None:
            os.killpg(process.process.pid, 9)
        process.process.wait()


def get(url: str, body: Mapping[str, Any] | None = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        content: bytes = answer.read()
        return content
