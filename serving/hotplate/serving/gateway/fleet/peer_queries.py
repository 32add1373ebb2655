"""Short questions to processes of ours: one request, one JSON answer, one connection."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotplate.serving.gateway.sockets.dialing import open_streams
from hotplate.serving.gateway.sockets.handshake import introduced
from hotplate.serving.gateway.sockets.proof import Proof

ANSWER_S = 2.0
RUNNING_PATH = "/hotplate/running"


@dataclass(frozen=True)
class Handlers:
    """Those that run in a worker."""

    running: int = 0
    websockets: int = 0
    """Of all that run."""
    tasks: int = 0
    """The same."""


async def ask_running(address: str) -> Handlers | None:
    """What runs in the worker at an address; nothing if nobody is there any more, None if it does
    not say."""
    try:
        async with asyncio.timeout(ANSWER_S):
            opened = await open_streams(address)
            said = await _ask(*opened, RUNNING_PATH)
            of_them = (int(said.get(kind, 0)) for kind in ("websockets", "tasks"))
            return Handlers(int(said["running"]), *of_them)
    except (ConnectionRefusedError, FileNotFoundError):
        return Handlers()
    except (OSError, ValueError, TypeError, KeyError):
        return None


async def ask_gateway(socket: Path, proof: Proof, path: str) -> Any:
    """What another gateway of this machine answers to an operator who asks for the path.

    Raises OSError or ValueError where there is no answer.
    """
    async with asyncio.timeout(ANSWER_S):
        there = await introduced(socket, proof)
        reader, writer = await asyncio.open_unix_connection(sock=there)
        writer.write(b"\n")  # for no deployment: it is for the gateway itself
        return await _ask(reader, writer, path)


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> Any:
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        answer = await reader.read(-1)
        return json.loads(answer.partition(b"\r\n\r\n")[2])
    finally:
        writer.close()
