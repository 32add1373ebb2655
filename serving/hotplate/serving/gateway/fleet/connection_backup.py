"""A gateway's connections to servers that are not our workers, backed up at another gateway.

The gateway that would own the deployment next has a descriptor of each connection, so that they
outlive the gateway that opened them. Such a server cannot say what runs in it, but its connection
shows it: the handler has ended when its response has. A packet with the descriptor is sent for each
connection that is opened, and one as it ends; nothing is sent per request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket

from hotplate.serving.gateway.fleet.members import FleetMembers, file_name
from hotplate.serving.gateway.sockets.packets import PACKET_BYTES
from hotplate.serving.gateway.sockets.proof import ConnectingSide, Proof, check_user

log = logging.getLogger(__name__)

OPENED, CLOSED, FAREWELL = b"+", b"-", b"."


class ConnectionBackup:
    """The connections for one deployment, backed up at the gateway that would own it next."""

    def __init__(self, fleet: FleetMembers, deployment: str) -> None:
        self._fleet = fleet
        self._deployment = deployment
        self._next_owner = ""
        self._connection: socket.socket | None = None
        self._handshake: socket.socket | None = None
        """Becomes the connection once both sides have proven that they are gateways of ours."""
        self._connections: dict[int, tuple[str, int]] = {}
        """(replica, descriptor) of each open connection, by number."""
        self._numbers = 0

    @property
    def proof(self) -> Proof:
        """The proof that this gateway belongs to the fleet."""
        return self._fleet.proof

    def opened(self, replica: str, descriptor: int) -> int:
        """A connection to a replica was opened; returns its number."""
        self._numbers += 1
        self._connections[self._numbers] = replica, descriptor
        if self._connection is None:
            self.follow()
        else:
            self._send_opened(self._numbers)
        return self._numbers

    def closed(self, number: int) -> None:
        """The connection has ended, and its server has to see the end."""
        del self._connections[number]
        self._send(CLOSED + b"%d" % number)

    def follow(self) -> None:
        """Connects to the next owner if that has changed."""
        next_owner = (
            self._fleet.next_owner(self._deployment) if self._connections else self._next_owner
        )
        if next_owner != self._next_owner or (
            next_owner and self._connection is None and self._handshake is None
        ):
            self._disconnect()
            self._next_owner = next_owner
            if next_owner:
                self._begin()

    def close(self, *, in_order: bool) -> None:
        """`in_order`: nothing runs on any of the connections."""
        if in_order:
            self._send(FAREWELL)
        self._disconnect()

    # Inside

    def _begin(self) -> None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.setblocking(False)
        keep = self._fleet.backup_socket_of(self._next_owner)
        side = ConnectingSide(self._fleet.proof, keep.name)
        try:
            line.connect(str(keep))
            check_user(line)
            line.send(side.first)
        except OSError as error:
            log.debug("gateway %s keeps no connections: %s", self._next_owner, error)
            line.close()
            return
        self._handshake = line
        asyncio.get_running_loop().add_reader(line, self._finish_handshake, line, side)

    def _finish_handshake(self, line: socket.socket, side: ConnectingSide) -> None:
        """The other gateway has responded: if it has proven that it is ours, it gets all
        connections."""
        try:
            line.send(side.respond(line.recv(PACKET_BYTES)))
        except BlockingIOError:
            return
        except OSError as error:
            if isinstance(error, PermissionError):
                log.warning("no connections are backed up: %s", error)
            self._disconnect()
            return
        asyncio.get_running_loop().remove_reader(line)
        self._handshake, self._connection = None, line
        hello = {"gateway": self._fleet.id, "deployment": file_name(self._deployment)}
        self._send(json.dumps(hello).encode())
        for number in list(self._connections):
            self._send_opened(number)

    def _send_opened(self, number: int) -> None:
        replica, descriptor = self._connections[number]
        self._send(OPENED + b"%d %b" % (number, replica.encode()), descriptor)

    def _send(self, packet: bytes, *descriptors: int) -> None:
        if self._connection is None:
            return
        try:
            socket.send_fds(self._connection, [packet], descriptors)
        except OSError:  # it ends, or is busy: everything is sent again on another connection
            self._disconnect()

    def _disconnect(self) -> None:
        if self._handshake is not None:
            asyncio.get_running_loop().remove_reader(self._handshake)
            self._handshake.close()
            self._handshake = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
