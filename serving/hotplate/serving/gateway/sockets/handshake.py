"""A connection to another gateway's socket, once both sides have proven that they may use it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from hotplate.serving.gateway.sockets.proof import (
    NUMBER_BYTES,
    PROOF_BYTES,
    ConnectingSide,
    Proof,
    check_user,
)

ANSWER_S = 2.0
ANSWER_BYTES = NUMBER_BYTES + PROOF_BYTES


async def open_proven(path: Path | str, proof: Proof) -> socket.socket:
    """Opens a stream socket. Raises OSError: PermissionError if the other side is no gateway of
    ours."""
    loop = asyncio.get_running_loop()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        async with asyncio.timeout(ANSWER_S):
            await loop.sock_connect(connection, str(path))
            check_user(connection)
            side = ConnectingSide(proof, Path(path).name)
            await loop.sock_sendall(connection, side.first)
            answer = b""
            while len(answer) < ANSWER_BYTES:
                data = await loop.sock_recv(connection, ANSWER_BYTES - len(answer))
                if not data:
                    raise ConnectionResetError(f"{path} has hung up")
                answer += data
            await loop.sock_sendall(connection, side.respond(answer))
    except BaseException:  # also when cancelled
        connection.close()
        raise
    return connection


def prove_ourselves(connection: socket.socket, name: str, proof: Proof) -> None:
    """The same for an open packet connection to the socket of that name. It blocks."""
    check_user(connection)
    side = ConnectingSide(proof, name)
    connection.send(side.first)
    connection.send(side.respond(connection.recv(ANSWER_BYTES)))
