"""Keeps what other gateways bequeath (`bequest.py`): their connections to servers not of ours.

While the other one lives nothing is read here: the connections are its own. Once it was killed,
what comes on them tells when the handlers have ended that it has left behind.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from functools import partial

from hotplate.serving.gateway.fleet.connection_backup import CLOSED, FAREWELL
from hotplate.serving.gateway.fleet.membership import Fleet
from hotplate.serving.gateway.fleet.orphan import Orphan, is_asked
from hotplate.serving.gateway.sockets.packets import PACKET_BYTES, PacketListener

READ_BYTES = 256 << 10
LOOK_S = 0.02
"""How often it is looked whether who parted without a word is dead."""
PARTED_S = 1.0
"""Who lives after this has parted on purpose, and says all anew."""
UNCLAIMED_S = 5.0
"""What nobody has asked for since is of no use: another gateway owns the deployment."""


class Kept:
    """One connection."""

    def __init__(self, replica: str, sock: socket.socket) -> None:
        self.replica = replica
        self.sock = sock
        self.orphan: Orphan | None = None
        """Known once its gateway is dead."""


class Estate:
    """What one gateway has bequeathed of one deployment."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.name = ("", "")
        """The gateway's id and the deployment's file name; empty = it has said nothing yet."""
        self.kept: dict[int, Kept] = {}
        self.asked_at = 0.0
        self._loop = asyncio.get_running_loop()

    def hear(self, packet: bytes, descriptors: list[int]) -> bool:
        """One packet of its gateway; whether it goes on."""
        if not self.name[0]:
            said = json.loads(packet)
            self.name = said["gateway"], said["deployment"]
        elif descriptors:
            number, _, replica = packet[1:].partition(b" ")
            self.kept[int(number)] = Kept(replica.decode(), socket.socket(fileno=descriptors[0]))
        elif packet.startswith(CLOSED):
            kept = self.kept.pop(int(packet[1:]), None)
            if kept is not None:
                kept.sock.close()
        return packet != FAREWELL

    def come_into(self) -> None:
        """Its gateway is dead: what comes is for here now."""
        now = self._loop.time()
        for kept in self.kept.values():
            kept.sock.setblocking(False)
            kept.orphan = Orphan(asked=is_asked(kept.sock), now=now)
            self._loop.add_reader(kept.sock, self._read, kept, kept.orphan)

    def drop(self) -> None:
        for kept in self.kept.values():
            self._end(kept)
        self.kept.clear()

    def left(
        self, replica: str, count: int, now: float, quiet_s: float, most_s: float
    ) -> tuple[int, int]:
        """Of `count` slots of a replica: how many may still be taken as far as connections tell
        (`Orphan.is_open`), and how many no connection tells of."""
        self.asked_at = now
        mine = [kept for kept in self.kept.values() if kept.replica == replica]
        answered = sum(k.orphan is not None and k.orphan.answered for k in mine)
        is_open = sum(
            k.orphan is None or k.orphan.is_open(now, quiet_s=quiet_s, most_s=most_s) for k in mine
        )
        return max(0, min(count - answered, is_open)), max(0, count - len(mine))

    def _read(self, kept: Kept, orphan: Orphan) -> None:
        try:
            data = kept.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        orphan.take(data, self._loop.time())
        if orphan.ended:
            self._end(kept)

    def _end(self, kept: Kept) -> None:
        if kept.sock.fileno() >= 0:
            self._loop.remove_reader(kept.sock)
            kept.sock.close()


class Keeper:
    """All that others have bequeathed to this gateway."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._loop = asyncio.get_running_loop()
        self._listener = PacketListener(fleet.keep_of(fleet.id), fleet.proof, self._came)
        self._estates: list[Estate] = []

    def open(self) -> None:
        """Listens. Raises OSError."""
        self._listener.open()

    def close(self) -> None:
        self._listener.close()
        for estate in list(self._estates):
            self._drop(estate)

    def of(self, gateway: str, deployment: str) -> Estate | None:
        """What that gateway has bequeathed; None = nothing."""
        return next(self._named((gateway, deployment)), None)

    def settled(self, gateway: str, deployment: str) -> None:
        """Nothing that it had runs any more."""
        for estate in list(self._named((gateway, deployment))):
            self._drop(estate)

    # Inside

    def _named(self, name: tuple[str, str]) -> Iterator[Estate]:
        return (estate for estate in self._estates if estate.name == name)

    def _came(self, line: socket.socket) -> None:
        estate = Estate(line)
        self._estates.append(estate)
        self._loop.add_reader(line, self._hear, estate)

    def _hear(self, estate: Estate) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(estate.line, PACKET_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            packet, descriptors = b"", []
        if not packet:
            self._stop_hearing(estate)
            self._look(estate, self._loop.time() + PARTED_S)
        elif not estate.hear(packet, descriptors):
            self._drop(estate)

    def _look(self, estate: Estate, until: float) -> None:
        """Its line has ended: was its gateway killed?"""
        if estate not in self._estates:
            return
        if not self._fleet.lives(estate.name[0]):
            estate.come_into()
            estate.asked_at = self._loop.time()
            self._loop.call_later(UNCLAIMED_S, self._drop_unclaimed, estate)
        elif self._loop.time() < until:
            self._loop.call_later(LOOK_S, partial(self._look, estate, until))
        else:
            self._drop(estate)

    def _drop_unclaimed(self, estate: Estate) -> None:
        if self._loop.time() - estate.asked_at >= UNCLAIMED_S:
            self._drop(estate)
        elif estate in self._estates:
            self._loop.call_later(UNCLAIMED_S, self._drop_unclaimed, estate)

    def _drop(self, estate: Estate) -> None:
        if estate in self._estates:
            self._estates.remove(estate)
            self._stop_hearing(estate)
            estate.drop()

    def _stop_hearing(self, estate: Estate) -> None:
        if estate.line.fileno() >= 0:
            self._loop.remove_reader(estate.line)
            estate.line.close()
