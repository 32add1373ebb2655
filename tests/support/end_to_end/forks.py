"""Commands that run in forks of one process, which has imported what they need."""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

SERVER = Path(__file__).with_name("fork_server.py")


async def run(
    argv: list[str], environ: Mapping[str, str], folder: Path, program: str = ""
) -> tuple[int, str]:
    """The exit status and the output of `bentoml …` or `hotplate …`, or else of a program."""
    asked = {"argv": argv, "environ": dict(environ), "folder": str(folder), "program": program}
    reader, writer = await asyncio.open_unix_connection(address())
    try:
        writer.write(json.dumps(asked).encode() + b"\n")
        said = await reader.read()
    finally:
        writer.close()
    return said[-1], said[:-1].decode()


@functools.cache
def address() -> str:
    """Where this test session's server listens; it ends with the session."""
    folder = tempfile.TemporaryDirectory(prefix="forks-")
    path = f"{folder.name}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        server = subprocess.Popen(
            [sys.executable, SERVER, str(listener.fileno())], pass_fds=[listener.fileno()]
        )

    def end() -> None:
        server.kill()
        server.wait()
        folder.cleanup()

    atexit.register(end)
    return path
