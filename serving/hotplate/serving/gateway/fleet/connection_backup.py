"""A gateway's connections to servers that are not our workers, kept twice: the gateway that would
own the deployment next has a descriptor of each, so that they outlive the one that opened them.

Such a server cannot say what runs in it. Its connection says it, as long as somebody has it: the
handler has ended when its answer has. One packet for each connection that is opened, with its
descriptor, and one as it ends, in time; nothing per request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket

from hotplate.serving.gateway.fleet.membership import Fleet, file_name
from hotplate.serving.gateway.sockets.packets import PACKET_BYTES
from hotplate.serving.gateway.sockets.proof import Asker, Proof, check_user

log = logging.getLogger(__name__)

OPENED, CLOSED, FAREWELL = b"+", b"-", b"."


class ConnectionBackup:
    """Of one deployment."""

    def __init__(self, fleet: Fleet, deployment: str) -> None:
        self._fleet = fleet
        self._deployment = deployment
        self._next_owner = ""
        self._line: socket.socket | None = None
        self._meeting: socket.socket | None = None
        """Becomes the line once both sides have shown that they are gateways of ours."""
        self._connections: dict[int, tuple[str, int]] = {}
        """(replica, descriptor) of each that is open, by number."""
        self._numbers = 0

    @property
    def proof(self) -> Proof:
        """What this gateway shows the others."""
        return self._fleet.proof

    def opened(self, replica: str, descriptor: int) -> int:
        """A connection to a replica is there; its number."""
        self._numbers += 1
        self._connections[self._numbers] = replica, descriptor
        if self._line is None:
            self.follow()
        else:
            self._tell(self._numbers)
        return self._numbers

    def closed(self, number: int) -> None:
        """It is gone; the server is to see its end."""
        del self._connections[number]
        self._say(CLOSED + b"%d" % number)

    def follow(self) -> None:
        """The gateways may be others."""
        next_owner = (
            self._fleet.next_owner(self._deployment) if self._connections else self._next_owner
        )
        if next_owner != self._next_owner or (
            next_owner and self._line is None and self._meeting is None
        ):
            self._part()
            self._next_owner = next_owner
            if next_owner:
                self._begin()

    def close(self, *, in_order: bool) -> None:
        """`in_order`: nothing runs on any of them."""
        if in_order:
            self._say(FAREWELL)
        self._part()

    # Inside

    def _begin(self) -> None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.setblocking(False)
        keep = self._fleet.keep_of(self._next_owner)
        asker = Asker(self._fleet.proof, keep.name)
        try:
            line.connect(str(keep))
            check_user(line)
            line.send(asker.first)
        except OSError as error:
            log.debug("gateway %s keeps no connections: %s", self._next_owner, error)
            line.close()
            return
        self._meeting = line
        asyncio.get_running_loop().add_reader(line, self._go_on, line, asker)

    def _go_on(self, line: socket.socket, asker: Asker) -> None:
        """The other gateway has answered: what there is may be told, if it is one."""
        try:
            line.send(asker.hear(line.recv(PACKET_BYTES)))
        except BlockingIOError:
            return
        except OSError as error:
            if isinstance(error, PermissionError):
                log.warning("no connections are backed up: %s", error)
            self._part()
            return
        asyncio.get_running_loop().remove_reader(line)
        self._meeting, self._line = None, line
        hello = {"gateway": self._fleet.id, "deployment": file_name(self._deployment)}
        self._say(json.dumps(hello).encode())
        for number in list(self._connections):
            self._tell(number)

    def _tell(self, number: int) -> None:
        replica, descriptor = self._connections[number]
        self._say(OPENED + b"%d %b" % (number, replica.encode()), descriptor)

    def _say(self, packet: bytes, *descriptors: int) -> None:
        if self._line is None:
            return
        try:
            socket.send_fds(self._line, [packet], descriptors)
        except OSError:  # it ends, or has no time: all is said anew on another line
            self._part()

    def _part(self) -> None:
        if self._meeting is not None:
            asyncio.get_running_loop().remove_reader(self._meeting)
            self._meeting.close()
            self._meeting = None
        if self._line is not None:
            self._line.close()
            self._line = None
