"""Keeps other gateways' connections to servers that are not our workers (`connection_backup.py`).

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


class KeptConnection:
    """One connection."""

    def __init__(self, replica: str, sock: socket.socket) -> None:
        self.replica = replica
        self.sock = sock
        self.orphan: Orphan | None = None
        """Known once its gateway is dead."""


class Backup:
    """The connections that one gateway has to one deployment, kept for when it is killed."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.name = ("", "")
        """The gateway's id and the deployment's file name; empty = it has said nothing yet."""
        self.kept: dict[int, KeptConnection] = {}
        self.asked_at = 0.0
        self._loop = asyncio.get_running_loop()

    def hear(self, packet: bytes, descriptors: list[int]) -> bool:
        """One packet of its gateway; whether it goes on."""
        if not self.name[0]:
            said = json.loads(packet)
            self.name = said["gateway"], said["deployment"]
        elif descriptors:
            number, _, replica = packet[1:].partition(b" ")
            self.kept[int(number)] = KeptConnection(
                replica.decode(), socket.socket(fileno=descriptors[0])
            )
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

    def _read(self, kept: KeptConnection, orphan: Orphan) -> None:
        try:
            data = kept.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        orphan.take(data, self._loop.time())
        if orphan.ended:
            self._end(kept)

    def _end(self, kept: KeptConnection) -> None:
        if kept.sock.fileno() >= 0:
            self._loop.remove_reader(kept.sock)
            kept.sock.close()


class BackupKeeper:
    """All that the other gateways have backed up here."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._loop = asyncio.get_running_loop()
        self._listener = PacketListener(fleet.keep_of(fleet.id), fleet.proof, self._came)
        self._backups: list[Backup] = []

    def open(self) -> None:
        """Listens. Raises OSError."""
        self._listener.open()

    def close(self) -> None:
        self._listener.close()
        for backup in list(self._backups):
            self._drop(backup)

    def of(self, gateway: str, deployment: str) -> Backup | None:
        """What that gateway has backed up; None = nothing."""
        return next(self._named((gateway, deployment)), None)

    def settled(self, gateway: str, deployment: str) -> None:
        """Nothing that it had runs any more."""
        for backup in list(self._named((gateway, deployment))):
            self._drop(backup)

    # Inside

    def _named(self, name: tuple[str, str]) -> Iterator[Backup]:
        return (backup for backup in self._backups if backup.name == name)

    def _came(self, line: socket.socket) -> None:
        backup = Backup(line)
        self._backups.append(backup)
        self._loop.add_reader(line, self._hear, backup)

    def _hear(self, backup: Backup) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(backup.line, PACKET_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            packet, descriptors = b"", []
        if not packet:
            self._stop_hearing(backup)
            self._look(backup, self._loop.time() + PARTED_S)
        elif not backup.hear(packet, descriptors):
            self._drop(backup)

    def _look(self, backup: Backup, until: float) -> None:
        """Its line has ended: was its gateway killed?"""
        if backup not in self._backups:
            return
        if not self._fleet.lives(backup.name[0]):
            backup.come_into()
            backup.asked_at = self._loop.time()
            self._loop.call_later(UNCLAIMED_S, self._drop_unclaimed, backup)
        elif self._loop.time() < until:
            self._loop.call_later(LOOK_S, partial(self._look, backup, until))
        else:
            self._drop(backup)

    def _drop_unclaimed(self, backup: Backup) -> None:
        if self._loop.time() - backup.asked_at >= UNCLAIMED_S:
            self._drop(backup)
        elif backup in self._backups:
            self._loop.call_later(UNCLAIMED_S, self._drop_unclaimed, backup)

    def _drop(self, backup: Backup) -> None:
        if backup in self._backups:
            self._backups.remove(backup)
            self._stop_hearing(backup)
            backup.drop()

    def _stop_hearing(self, backup: Backup) -> None:
        if backup.line.fileno() >= 0:
            self._loop.remove_reader(backup.line)
            backup.line.close()
