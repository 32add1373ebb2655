"""Where the program of a custom command listens; runs in the replica (Python >= 3.9).

The port is the author's, written into the service and into the command. A machine has it once,
but several replicas: the old and the new one of a roll-out, or those of two deployments.
"""

from __future__ import annotations

import re
import socket
from inspect import getattr_static
from pathlib import Path
from typing import Any

DEFAULT_PORT = 8000
"""BentoML's."""
SAYS_PORT = r"((?:^|[\0\s])(?:-p|--?[\w-]*port)[\0\s=]+|(?:^|[\0\s=])[^\0\s=]*:){port}(?![\w.])"
"""`--port 8000`, `--http-port=8000`, `-p 8000`, `--bind 0.0.0.0:8000`; arguments end with NUL."""


def place_command(service: Any, note: Path, first: bool) -> None:
    """Move a service's command to a free port if the author's is taken.

    The first worker decides and writes the port to `note`, the others read it there. Raises
    ValueError if the port is taken and the command does not say it: the answers of whoever
    listens there would be taken for our own's.
    """
    http = service.config.setdefault("http", {})
    port = int(http.get("proxy_port") or DEFAULT_PORT)
    if first:
        note.write_text(str(_free_port() if _is_taken(port) else port), encoding="utf-8")
    to = int(note.read_text(encoding="utf-8"))
    if to == port:
        return
    http["proxy_port"] = to
    if service.cmd is not None:
        service.cmd = moved(service.cmd, port, to)
    if hasattr(service.inner, "__command__"):
        written = getattr_static(service.inner, "__command__")

        def command(self: Any) -> list[str]:
            return moved(written.__get__(self, type(self))(), port, to)

        service.inner.__command__ = command


def moved(command: list[str], port: int, to: int) -> list[str]:
    """The command with its port replaced, where it is said to be one. Raises ValueError."""
    pattern = SAYS_PORT.replace("{port}", str(port))
    text, times = re.subn(pattern, rf"\g<1>{to}", "\0".join(_expanded(command)))
    if not times:
        raise ValueError(
            f"port {port}, on which the service's command is to listen (http.proxy_port), is "
            "taken on this machine, and the command does not say it, so it cannot be given "
            f"another: stop who listens there, or write the command with '--port {port}'"
        )
    return text.split("\0")


def _expanded(command: list[str]) -> list[str]:
    from bentoml._internal.utils import expand_envs

    return [expand_envs(argument) for argument in command]


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
