"""Short queries to processes of ours: one request, one JSON response, one connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotplate.serving.gateway.sockets.dialing import open_streams
from hotplate.serving.gateway.sockets.handshake import open_proven_streams
from hotplate.serving.gateway.sockets.proof import Proof

ANSWER_S = 2.0
RUNNING_PATH = "/hotplate/running"
RECALL_PATH = "/hotplate/recall/"


@dataclass(frozen=True)
class Handlers:
    """The handlers that run in a worker."""

    running: int = 0
    websockets: int = 0
    """WebSockets' handlers among them."""
    tasks: int = 0
    """Tasks' handlers among them."""


async def ask_running(address: str) -> Handlers | None:
    """The handlers in the worker at an address; none if it no longer listens, None if it does not
    say."""
    try:
        async with asyncio.timeout(ANSWER_S):
            opened = await open_streams(address)
            report = await _ask(*opened, RUNNING_PATH)
            of_them = (int(report.get(kind, 0)) for kind in ("websockets", "tasks"))
            return Handlers(int(report["running"]), *of_them)
    except (ConnectionRefusedError, FileNotFoundError):
        return Handlers()
    except (OSError, ValueError, TypeError, KeyError):
        return None


async def ask_back(address: str, passed: Sequence[bytes]) -> frozenset[bytes] | None:
    """With which of these requests the worker at an address has begun; it begins with none of them
    from now on. None = it does not say."""
    path = RECALL_PATH + b",".join(passed).decode()
    try:
        async with asyncio.timeout(ANSWER_S):
            report = await _ask(*await open_streams(address), path)
            return frozenset(each.encode() for each in report["begun"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


async def ask_gateway(address: str, proof: Proof, path: str) -> Any:
    """Another gateway's response to an operator's request for the path. Raises OSError or
    ValueError if there is none."""
    async with asyncio.timeout(ANSWER_S):
        reader, writer = await open_proven_streams(address, proof)
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
