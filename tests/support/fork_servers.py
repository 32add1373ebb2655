"""Processes that have imported what takes long, and fork for whoever asks."""

from __future__ import annotations

import atexit
import functools
import socket
import subprocess
import sys
import tempfile
from pathlib import Path


@functools.cache
def address_of(server: Path, *arguments: str) -> str:
    """Where this test session's process of a program listens; it ends with the session.

    The program's first argument is the descriptor of the Unix socket; `arguments` follow.
    """
    folder = tempfile.TemporaryDirectory(prefix="forks-")
    path = f"{folder.name}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        descriptor = listener.fileno()
        command = [sys.executable, "-u", str(server), str(descriptor), *arguments]
        process = subprocess.Popen(command, pass_fds=[descriptor])

    def end() -> None:
        process.kill()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return path
