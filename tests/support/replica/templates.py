"""A template's process and its children, started and told as an engine does it."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hotplate.deploy.local.runtime import Command, Warm
from tests.support.patience import PATIENCE_S
from tests.support.replica.standbys import begun

CREDENTIALS = struct.Struct("iII")


class Child:
    """What `Template.fork` asks for."""

    def __init__(self, channel: socket.socket, ours: socket.socket | None = None) -> None:
        """`ours` is the other end."""
        self.channel = channel
        self.channel.settimeout(PATIENCE_S)
        self.pid = 0
        """As we know it."""
        self._received = b""

    def says(self) -> Any:
        """Its next message; None once it has ended."""
        while b"\n" not in self._received:
            size = socket.CMSG_SPACE(CREDENTIALS.size)
            data, extra, _, _ = self.channel.recvmsg(1 << 16, size)
            if not data:
                return None
            for _, kind, content in extra:
                if kind == socket.SCM_CREDENTIALS:
                    self.pid = CREDENTIALS.unpack(content)[0] or self.pid
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    def become(self, command: Command, log_path: Path, **env: str) -> tuple[str, Any]:
        """The address at which it listens, and its answer."""
        more = {"HOTPLATE_REPLICA_DIR": str(log_path.parent), "CUDA_VISIBLE_DEVICES": "", **env}
        return self.take({**command.env, **more}, command.job, log_path)

    def take(
        self, env: Mapping[str, str], job: Mapping[str, Any], log_path: Path
    ) -> tuple[str, Any]:
        """The same with any job."""
        told = os.memfd_create("job")
        os.write(told, json.dumps({"env": dict(env), "job": dict(job)}).encode())
        with (
            socket.create_server(("127.0.0.1", 0), backlog=128) as listener,
            log_path.open("ab") as log,
        ):
            socket.send_fds(self.channel, [b"j"], [told, listener.fileno(), log.fileno()])
            os.close(told)
            return "http://{}:{}".format(*listener.getsockname()), self.says()


class Template:
    def __init__(self, warm: Warm, folder: Path, **env: str) -> None:
        folder.mkdir()
        self.log = folder / "log"
        self.children: list[Child] = []
        variable = "HOTPLATE_TEMPLATE_FD"
        self.process, channel = begun(warm, warm.template, variable, self.log, **env)
        self._channel = Child(channel)

    def says(self) -> Any:
        answer = self._channel.says()
        assert answer is not None, self.log.read_text()
        return answer

    def fork(self) -> Child:
        """Asks for a child, which says that it is one."""
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with theirs:
            socket.send_fds(self._channel.channel, [b"f"], [theirs.fileno()])
        self.children.append(Child(ours))
        return self.children[-1]

    def forked(self) -> Child:
        """A child that has been forked."""
        child = self.fork()
        answer = child.says()
        assert answer is not None and "forked" in answer, (answer, self.log.read_text())
        return child

    def leave(self) -> None:
        """As an engine that ends: all channels do."""
        for child in (self._channel, *self.children):
            child.channel.close()


@contextmanager
def template(warm: Warm, folder: Path, **env: str) -> Iterator[Template]:
    """One that is killed at the end, with its children."""
    process = Template(warm, folder, **env)
    try:
        yield process
    finally:
        process.leave()
        process.process.kill()
        process.process.wait()
        for child in process.children:
            with suppress(ProcessLookupError):
                if child.pid:
                    os.kill(child.pid, 9)
