"""A network namespace for the program of a custom command, so that its port is its own; runs in the
replica (Python >= 3.9).

Only the program lives there, the worker does not. Connections to a Unix socket, which only the
replica sees, are passed on to the program's port. The ways out lead to the ports of this machine's
loopback that the replica's variables name (dependencies, a mirror, a database), and to an HTTP
proxy for everything else.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Callable

from hotplate.serving.replica.inside.command.relay import Handler, proxy, to_port

INSIDE = "hotplate.serving.replica.inside.command.network_namespace"
NAMED = re.compile(r"(?:\blocalhost|\b127\.0\.0\.1|\[::1\]):(\d{1,5})\b")
"""A port of loopback in the value of a variable."""
_ANSWER_BYTES = 1 << 12
_LIMIT_S = 30.0
"""Limit for what takes a tenth of a second, on a busy machine."""
_FDS_MAX = 250
"""The kernel passes 253 descriptors at a time."""


class Network:
    """The network of one program, which has it until this process ends."""

    def __init__(self, port: int, address: Path, texts: Iterable[str]) -> None:
        """Callers of `address`, a Unix socket, reach `port` inside; the loopback ports in `texts`
        lead out. Raises OSError if no network can be made."""
        outward = [named for named in _named(texts) if named != port][:_FDS_MAX]
        ours, theirs = socket.socketpair()
        with theirs, _listening(address) as listener:
            numbers = (theirs.fileno(), listener.fileno(), port, 0, *outward)
            self._process = subprocess.Popen(
                [*_program("make"), *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                pass_fds=numbers[:2],
            )
        self.pid = self._process.pid
        self._channel = ours
        ours.settimeout(_LIMIT_S)
        try:
            listeners = self._listeners()
        except OSError:
            ours.close()
            self._process.kill()
            self._process.wait()
            raise
        ours.settimeout(None)
        self._proxy = listeners[0].getsockname()[1]
        _serve(
            [(listeners[0], proxy)]
            + [(each, to_port(named)) for each, named in zip(listeners[1:], outward)]
        )

    def command(self, program: list[str]) -> list[str]:
        """The beginning of the command that starts the program in the network."""
        return [*_program("enter"), str(self.pid), str(self._proxy), "--", *program]

    def when_lost(self, on_lost: Callable[[], None]) -> None:
        """Calls `on_lost`, in a thread, if the namespace's process ends before this one."""

        def wait() -> None:
            self._process.wait()
            on_lost()

        threading.Thread(target=wait, name="network", daemon=True).start()

    def _listeners(self) -> list[socket.socket]:
        """The listening sockets of the ways out, in their order. Raises OSError."""
        reply = self._channel.recv(_ANSWER_BYTES)
        if reply == b"made":
            _map_users(self.pid)
            self._channel.sendall(b"m")
            reply, fds, _, _ = socket.recv_fds(self._channel, _ANSWER_BYTES, _FDS_MAX)
            if reply == b"ready":
                return [socket.socket(fileno=fd) for fd in fds]
        raise OSError(reply.decode(errors="replace") or "the process that makes it has ended")


def carried(address: Path, port: int) -> None:
    """Callers of `address`, a Unix socket, reach `port` of this very machine. Raises OSError."""
    _serve([(_listening(address), to_port(port))])


def _listening(address: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with suppress(FileNotFoundError):
        address.unlink()
    folder = os.open(address.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{address.name}")
        address.chmod(0o600)
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener


def _program(verb: str) -> list[str]:
    return [sys.executable, "-S", "-m", INSIDE, verb]


def _named(texts: Iterable[str]) -> list[int]:
    """The ports of loopback in the texts, each once."""
    found = {int(port) for text in texts for port in NAMED.findall(text)}
    return sorted(port for port in found if 0 < port < 1 << 16)


def _map_users(pid: int) -> None:
    """Maps the users in the namespace to the same users here. Raises OSError."""
    if os.path.samefile(f"/proc/{pid}/ns/user", "/proc/self/ns/user"):
        return
    for name, own in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
        with open(f"/proc/self/{name}") as file:
            lines = [line.split() for line in file]
        all_of_us = "".join(f"{inside} {inside} {count}\n" for inside, _, count in lines)
        try:
            _write(f"/proc/{pid}/{name}", all_of_us)
        except OSError:  # an ordinary user may map itself only
            with suppress(OSError):
                _write(f"/proc/{pid}/setgroups", "deny")
            _write(f"/proc/{pid}/{name}", f"{own} {own} 1\n")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _serve(handlers: list[tuple[socket.socket, Handler]]) -> None:
    """Has connections handled in a thread, for as long as this process lives."""

    async def serve() -> None:
        servers = [await asyncio.start_server(handle, sock=each) for each, handle in handlers]
        await asyncio.gather(*(server.serve_forever() for server in servers))

    threading.Thread(target=lambda: asyncio.run(serve()), name="relay", daemon=True).start()
