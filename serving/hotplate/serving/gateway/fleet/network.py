"""The gateways of one installation on any machines: they meet over TCP.

All addresses of some names, mostly of one, are gateways. Each gateway connects to each of them and
says what it serves, once it has proven that it knows the cluster's token (`sockets/proof.py`); then
both sides say every `BEAT_S` that they live. Whoever is silent for `SILENT_S`, or whose connection
ends, has gone. So gateways that see each other agree after a moment on one owner of a deployment;
those that are cut from each other each have one, and no replica runs more than its slots, because
its worker counts for both (`replica/inside/patches/fence.py`).

A request is passed on only to a gateway that hashes higher, whatever each of them sees, so none
goes in a circle.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from hotplate.machine.address import Address
from hotplate.serving.gateway.fleet.members import RETIRES, FleetMembers, OwnerLock, file_name
from hotplate.serving.gateway.sockets.handshake import open_proven

log = logging.getLogger(__name__)

BEAT_S = 0.25
SILENT_S = 1.2
"""A gateway that has said nothing for this long has gone; others own its share within 2 s."""
RESOLVE_S = 1.0
"""How often the names are looked up."""
MEET_S = 2.0
"""How long a gateway that starts waits at most for those that are there already."""
GREETING = "@gateway"
"""Names a connection between gateways, where others name a deployment."""
LINE_BYTES = 16 << 20
"""The longest line: what a gateway serves, 25 bytes for each route."""


class PeerLink:
    """A connection to another gateway, whichever of the two has opened it."""

    def __init__(self, writer: asyncio.StreamWriter, dialed: Address | None) -> None:
        self._writer = writer
        self.dialed = dialed
        """None = the other side has opened it."""
        self.gateway = ""
        """The other side's id; empty = it has not said it."""
        self.serving: frozenset[str] = frozenset()
        self.address = ""
        """Where it takes requests."""

    def hear(self, line: bytes) -> None:
        """The other side has said what it serves. Raises ValueError, KeyError, TypeError."""
        said = json.loads(line)
        host, *_ = self._writer.get_extra_info("peername")
        self.gateway = str(said["gateway"])
        self.serving = frozenset(map(str, said["serving"]))
        self.address = str(self.dialed or Address(host, int(said["port"])))

    def say(self, line: bytes) -> None:
        self._writer.write(line)

    def close(self) -> None:
        self._writer.close()


class NetworkFleet(FleetMembers):
    """One gateway's membership among those that it sees."""

    def __init__(
        self, folder: Path, started_at: float, token: str, listen: Address, names: Sequence[Address]
    ) -> None:
        """`started_at`: seconds of the wall clock. `listen` is where the others reach this one;
        all addresses of `names` are gateways. The end of its id is the name of its machine, which
        is that of its pod."""
        made = f"{int(started_at * 1000):015d}-{secrets.token_hex(4)}-{os.uname().nodename}"
        super().__init__(made, folder, token)
        self.listen = listen
        self._names = names
        self._links: set[PeerLink] = set()
        self._own_addresses: set[Address] = set()
        """Those of the names' that are this gateway's."""
        self._dialing: set[Address] = set()
        self._silent: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    @property
    def name(self) -> str:
        return f"peers from {','.join(map(str, self._names))}"

    async def join(self) -> None:
        """Finds those that are there already; it must be listening for them."""
        dialed = asyncio.Event()
        self._begin(self._find(dialed))
        self._begin(self._beat())
        with suppress(TimeoutError):
            async with asyncio.timeout(MEET_S):
                await dialed.wait()

    def accepted(self) -> asyncio.Protocol:
        """The protocol of a connection that another gateway has opened, and proven to be one's."""

        def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._begin(self._talk(reader, PeerLink(writer, None)))

        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=LINE_BYTES), talk)

    # As all members

    def look(self) -> Sequence[str]:
        return self.peers

    def serve(self, deployments: Iterable[str]) -> None:
        self._publish(frozenset(map(file_name, deployments)))

    def retire(self) -> None:
        self._publish(frozenset({RETIRES}))

    def lock_owner(self, deployment: str) -> OwnerLock | None:
        return OwnerLock()

    def owner(self, deployment: str) -> str:
        owner = self.rightful_owner(deployment)
        return "" if owner == self.id else owner

    def address_of(self, gateway: str) -> str:
        return next((link.address for link in self._links if link.gateway == gateway), "")

    def is_silent(self, gateway: str) -> bool:
        return gateway in self._silent and gateway not in self._serving

    def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        for link in self._links:
            link.close()

    # Inside

    def _begin(self, work: asyncio._CoroutineLike[None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _publish(self, own: frozenset[str]) -> None:
        if own != self._own:
            self._own = own
            self.changes += 1
            for link in self._links:
                link.say(self._said())

    def _said(self) -> bytes:
        said = {"gateway": self.id, "port": self.listen.port, "serving": sorted(self._own)}
        return json.dumps(said).encode() + b"\n"

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            for link in self._links:
                link.say(b"\n")

    async def _find(self, dialed: asyncio.Event) -> None:
        """Connects to each address of the names, again and again."""
        while True:
            for address in await self._addresses():
                linked = {link.dialed for link in self._links} | self._dialing
                if address not in linked | self._own_addresses:
                    self._dialing.add(address)
                    self._begin(self._dial(address, dialed))
            if not self._dialing:
                dialed.set()
            await asyncio.sleep(RESOLVE_S)

    async def _addresses(self) -> Sequence[Address]:
        found: set[Address] = set()
        for host, port in self._names:
            try:
                places = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                log.debug("%s leads to no gateway: %s", host, error)
                continue
            found |= {Address(str(place[4][0]), port) for place in places}
        return sorted(found)

    async def _dial(self, address: Address, dialed: asyncio.Event) -> None:
        try:
            connection = await open_proven(str(address), self.proof)
            reader, writer = await asyncio.open_connection(sock=connection, limit=LINE_BYTES)
        except PermissionError as error:
            log.warning("%s", error)
        except OSError as error:
            log.debug("%s is no gateway now: %s", address, error)
        else:
            writer.write(f"{GREETING}\n".encode())
            self._begin(self._talk(reader, PeerLink(writer, address)))
        finally:
            self._dialing.discard(address)
            if not self._dialing:
                self._loop.call_later(BEAT_S, dialed.set)  # when they have said what they serve

    async def _talk(self, reader: asyncio.StreamReader, link: PeerLink) -> None:
        """Follows what the other side says, until it is silent."""
        self._links.add(link)
        link.say(self._said())
        try:
            while True:
                async with asyncio.timeout(SILENT_S):
                    line = await reader.readline()
                if not line:
                    break
                if line != b"\n":
                    link.hear(line)
                    self._silent.discard(link.gateway)
                    if link.gateway == self.id and link.dialed is not None:
                        self._own_addresses.add(link.dialed)
                        break
                    self._see()
        except TimeoutError:
            log.info("gateway %s is silent", link.gateway or link.dialed)
            self._silent.add(link.gateway)
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.info("gateway %s: %s", link.gateway or link.dialed, error)
        finally:
            self._links.discard(link)
            link.close()
            self._see()

    def _see(self) -> None:
        """Who is there may have changed."""
        said = {link.gateway: link.serving for link in self._links if link.gateway}
        said.pop(self.id, None)
        serving = dict(sorted(said.items()))
        if serving != self._serving:
            for gateway in serving.keys() ^ self._serving.keys():
                log.info("gateway %s %s", gateway, "is here" if gateway in serving else "has gone")
            self._serving = serving
            self.changes += 1
