"""A connection to another gateway's socket, once both sides have shown that they may use it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from hotplate.serving.gateway.sockets.proof import (
    NUMBER_BYTES,
    PROOF_BYTES,
    Asker,
    Proof,
    check_user,
)

ANSWER_S = 2.0
ANSWER_BYTES = NUMBER_BYTES + PROOF_BYTES


async def introduced(path: Path | str, proof: Proof) -> socket.socket:
    """A stream socket. Raises OSError: PermissionError where the other side is no gateway."""
    loop = asyncio.get_running_loop()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        async with asyncio.timeout(ANSWER_S):
            await loop.sock_connect(connection, str(path))
            check_user(connection)
            asker = Asker(proof, Path(path).name)
            await loop.sock_sendall(connection, asker.first)
            answer = b""
            while len(answer) < ANSWER_BYTES:
                data = await loop.sock_recv(connection, ANSWER_BYTES - len(answer))
                if not data:
                    raise ConnectionResetError(f"{path} has hung up")
                answer += data
            await loop.sock_sendall(connection, asker.hear(answer))
    except BaseException:  # also when cancelled
        connection.close()
        raise
    return connection


def introduce(connection: socket.socket, name: str, proof: Proof) -> None:
    """The same for packets, and it blocks; on a connection to the socket of that name."""
    check_user(connection)
    asker = Asker(proof, name)
    connection.send(asker.first)
    connection.send(asker.hear(connection.recv(ANSWER_BYTES)))
