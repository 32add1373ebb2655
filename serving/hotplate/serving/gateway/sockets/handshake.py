"""A connection to another gateway's socket, once both sides have proven that they may use it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotplate.machine.address import Address
from hotplate.machine.dead_peers import keep_taking
from hotplate.serving.gateway.sockets.dialing import Streams
from hotplate.serving.gateway.sockets.proof import (
    NETWORK,
    NUMBER_BYTES,
    PROOF_BYTES,
    ConnectingSide,
    Proof,
    check_user,
)

ANSWER_S = 2.0
TAKE_S = 10.0
"""A gateway whose machine takes nothing for this long has gone."""
ANSWER_BYTES = NUMBER_BYTES + PROOF_BYTES


async def open_proven(address: str, proof: Proof) -> socket.socket:
    """Opens a stream socket to a path of this machine, or to `host:port`. Raises OSError:
    PermissionError if the other side is no gateway of ours."""
    loop = asyncio.get_running_loop()
    local = address.startswith("/")
    where: Any = address if local else Address.parse(address)
    family = socket.AF_UNIX if local else _family_of(where.host)
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        async with asyncio.timeout(ANSWER_S):
            await loop.sock_connect(connection, where)
            if local:
                check_user(connection)
            else:
                keep_taking(connection, TAKE_S)
            side = ConnectingSide(proof, Path(address).name if local else NETWORK)
            await loop.sock_sendall(connection, side.first)
            answer = b""
            while len(answer) < ANSWER_BYTES:
                data = await loop.sock_recv(connection, ANSWER_BYTES - len(answer))
                if not data:
                    raise ConnectionResetError(f"{address} has hung up")
                answer += data
            await loop.sock_sendall(connection, side.respond(answer))
    except BaseException:  # also when cancelled
        connection.close()
        raise
    return connection


async def connect_proven(make: Callable[[], asyncio.Protocol], address: str, proof: Proof) -> None:
    """Connects the protocol that `make` makes. Raises OSError."""
    loop = asyncio.get_running_loop()
    opened = await open_proven(address, proof)
    if opened.family == socket.AF_UNIX:
        await loop.create_unix_connection(make, sock=opened)
    else:
        await loop.create_connection(make, sock=opened)


async def open_proven_streams(address: str, proof: Proof) -> Streams:
    """Raises OSError."""
    opened = await open_proven(address, proof)
    if opened.family == socket.AF_UNIX:
        return await asyncio.open_unix_connection(sock=opened)
    return await asyncio.open_connection(sock=opened)


def _family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def prove_ourselves(connection: socket.socket, name: str, proof: Proof) -> None:
    """The same for an open packet connection to the socket of that name. It blocks."""
    check_user(connection)
    side = ConnectingSide(proof, name)
    connection.send(side.first)
    connection.send(side.respond(connection.recv(ANSWER_BYTES)))
