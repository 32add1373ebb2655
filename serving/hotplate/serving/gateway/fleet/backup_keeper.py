"""Keeps other gateways' connections to servers that are not our workers (`connection_backup.py`).

While the other gateway lives nothing is read here, because it uses the connections. Once it was
killed, what arrives on them shows when the handlers that it left behind have ended.
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
"""How often it is checked whether a gateway whose connection ended is dead."""
PARTED_S = 1.0
"""A gateway that still lives after this disconnected on purpose, and will send everything again."""
UNCLAIMED_S = 5.0
"""A backup that nothing has asked about for this long is useless: another gateway owns the
deployment."""


class BackedUpConnection:
    """One connection that was backed up here."""

    def __init__(self, replica: str, sock: socket.socket) -> None:
        self.replica = replica
        self.sock = sock
        self.orphan: Orphan | None = None
        """Known once its gateway is dead."""


class Backup:
    """One gateway's connections for one deployment, kept in case it is killed."""

    def __init__(self, line: socket.socket) -> None:
        self.connection = line
        self.name = ("", "")
        """The gateway's id and the deployment's file name; empty = it has sent nothing yet."""
        self.connections: dict[int, BackedUpConnection] = {}
        self.asked_at = 0.0
        self._loop = asyncio.get_running_loop()

    def receive(self, packet: bytes, descriptors: list[int]) -> bool:
        """Takes one packet of its gateway; returns whether more will follow."""
        if not self.name[0]:
            hello = json.loads(packet)
            self.name = hello["gateway"], hello["deployment"]
        elif descriptors:
            number, _, replica = packet[1:].partition(b" ")
            self.connections[int(number)] = BackedUpConnection(
                replica.decode(), socket.socket(fileno=descriptors[0])
            )
        elif packet.startswith(CLOSED):
            kept = self.connections.pop(int(packet[1:]), None)
            if kept is not None:
                kept.sock.close()
        return packet != FAREWELL

    def inherit(self) -> None:
        """Its gateway is dead: what arrives on the connections is read here from now on."""
        now = self._loop.time()
        for kept in self.connections.values():
            kept.sock.setblocking(False)
            kept.orphan = Orphan(asked=is_asked(kept.sock), now=now)
            self._loop.add_reader(kept.sock, self._read, kept, kept.orphan)

    def drop(self) -> None:
        for kept in self.connections.values():
            self._end(kept)
        self.connections.clear()

    def still_taken(
        self, replica: str, count: int, now: float, quiet_s: float, most_s: float
    ) -> tuple[int, int]:
        """Of `count` slots of a replica: how many may still be taken according to connections
        (`Orphan.is_open`), and how many have no connection here."""
        self.asked_at = now
        mine = [kept for kept in self.connections.values() if kept.replica == replica]
        answered = sum(k.orphan is not None and k.orphan.answered for k in mine)
        is_open = sum(
            k.orphan is None or k.orphan.is_open(now, quiet_s=quiet_s, most_s=most_s) for k in mine
        )
        return max(0, min(count - answered, is_open)), max(0, count - len(mine))

    def _read(self, kept: BackedUpConnection, orphan: Orphan) -> None:
        try:
            data = kept.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        orphan.take(data, self._loop.time())
        if orphan.ended:
            self._end(kept)

    def _end(self, kept: BackedUpConnection) -> None:
        if kept.sock.fileno() >= 0:
            self._loop.remove_reader(kept.sock)
            kept.sock.close()


class BackupKeeper:
    """All connections that the other gateways have backed up here."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._loop = asyncio.get_running_loop()
        self._listener = PacketListener(
            fleet.backup_socket_of(fleet.id), fleet.proof, self._on_connection
        )
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

    def forget(self, gateway: str, deployment: str) -> None:
        """Nothing that the gateway had started runs any longer."""
        for backup in list(self._named((gateway, deployment))):
            self._drop(backup)

    # Inside

    def _named(self, name: tuple[str, str]) -> Iterator[Backup]:
        return (backup for backup in self._backups if backup.name == name)

    def _on_connection(self, line: socket.socket) -> None:
        backup = Backup(line)
        self._backups.append(backup)
        self._loop.add_reader(line, self._receive, backup)

    def _receive(self, backup: Backup) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(backup.connection, PACKET_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            packet, descriptors = b"", []
        if not packet:
            self._stop_receiving(backup)
            self._look(backup, self._loop.time() + PARTED_S)
        elif not backup.receive(packet, descriptors):
            self._drop(backup)

    def _look(self, backup: Backup, until: float) -> None:
        """Its connection has ended: was its gateway killed?"""
        if backup not in self._backups:
            return
        if not self._fleet.lives(backup.name[0]):
            backup.inherit()
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
            self._stop_receiving(backup)
            backup.drop()

    def _stop_receiving(self, backup: Backup) -> None:
        if backup.connection.fileno() >= 0:
            self._loop.remove_reader(backup.connection)
            backup.connection.close()
