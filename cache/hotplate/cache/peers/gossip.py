"""How agents find each other and tell each other what they have. Runs on the event loop.

Each agent greets each other one about once a second, and at once when there is news. A greeting
names the known agents, and of every content on its way here says what `PeerState` holds, as
hexadecimal numbers. The answer says the same of the contents that the greeting names.

    POST /v1/peers {"id", "port", "members": [HOST:PORT…], "shares": {KEY: [HAVE, CLAIMS, …]}}
    →              {"id", "members": […], "shares": {KEY: [HAVE, CLAIMS, …]}}
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Mapping
from typing import Any

import aiohttp

from hotplate.cache.fetching.contents import Contents
from hotplate.cache.peers.change_signal import ChangeSignal
from hotplate.cache.peers.chunk_source import ChunkSource
from hotplate.cache.peers.members import Members
from hotplate.cache.swarm.participants import PeerState
from hotplate.machine.background import BackgroundTasks

log = logging.getLogger(__name__)

GREET_S = 1.0
NEWS_S = 0.02
"""At most so often."""
ANSWER_S = 2.5
"""Who does not answer for that long is not there."""

CONTENTS = 128
"""Contents named in one greeting: those to be fetched first. The others come later."""


class Gossip:
    """The agents that this one knows. Lives on the event loop."""

    def __init__(
        self,
        members: Members,
        contents: Contents,
        source: ChunkSource,
        changes: ChangeSignal,
        *,
        port: int,
        token: str,
    ) -> None:
        """`port` is where this agent answers; `token` is the cluster's.

        `changes` wakes the greeters, so that all peers are told at once.
        """
        self._members = members
        self._contents = contents
        self._source = source
        self._changes = changes
        self._port = port
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._greeting: set[str] = set()
        self._tasks = BackgroundTasks()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout)

    async def close(self) -> None:
        await self._tasks.cancel()
        await self._session.close()

    def tell(self, addresses: list[str]) -> None:
        """The operator's list of peers, as it is now."""
        self._members.tell([one for one in addresses if self._may_ask(one)], self._loop.time())
        self._greet_all()

    def addresses(self) -> list[str]:
        """Where other agents answer."""
        return list(self._members.live(self._loop.time()).values())

    def status(self) -> list[dict[str, Any]]:
        """Every known address, for people."""
        live = set(self.addresses())
        return [{"address": one, "live": one in live} for one in self._members.addresses()]

    def hear(self, host: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a greeting from that host. Raises KeyError, TypeError or ValueError."""
        peer, port = str(data["id"]), int(data["port"])
        shares = _shares(data["shares"])
        if peer != self._members.me:
            self._hear_of([_address(host, port), *map(str, data["members"])])
            self._contents.learn(peer, shares, {})
        answer = {
            key: one for key in shares if (one := self._source.state_for(peer, key)) is not None
        }
        return {
            "id": self._members.me,
            "members": self.addresses(),
            "shares": _shares_json({**self._own_states(peer), **answer}),
        }

    def _hear_of(self, addresses: list[str]) -> None:
        now = self._loop.time()
        if any([self._members.hear_of(one, now) for one in addresses if self._may_ask(one)]):
            self._greet_all()

    def _may_ask(self, address: str) -> bool:
        """Without a token, nobody beyond this machine."""
        host = address.rpartition(":")[0].strip("[]")
        if self._token or host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def _greet_all(self) -> None:
        for address in set(self._members.addresses()) - self._greeting:
            self._greeting.add(address)
            self._tasks.start(self._keep_greeting(address))

    async def _keep_greeting(self, address: str) -> None:
        with self._changes.listener() as changed:
            while address in self._members.addresses():
                changed.clear()
                await self._greet(address)
                await asyncio.sleep(NEWS_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(GREET_S - NEWS_S):
                        await changed.wait()
        self._greeting.discard(address)

    async def _greet(self, address: str) -> None:
        states = self._own_states(self._members.at(address))
        greeting = {
            "id": self._members.me,
            "port": self._port,
            "members": self.addresses(),
            "shares": _shares_json(states),
        }
        try:
            async with self._session.post(f"http://{address}/v1/peers", json=greeting) as response:
                response.raise_for_status()
                data = await response.json()
            peer, members = str(data["id"]), [str(one) for one in data["members"]]
            theirs = _shares(data["shares"])
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
            self._silent(address, error)
            self._contents.settle()
            return
        before = self._members.met(address, peer, self._loop.time())
        if before:
            self._forget(before)  # its agent was started again
        if peer != self._members.me:
            self._hear_of(members)
            self._contents.learn(peer, theirs, states)
        self._contents.settle(address, states)

    def _silent(self, address: str, error: Exception) -> None:
        refused = isinstance(error, aiohttp.ClientConnectorError) and isinstance(
            error.os_error, ConnectionRefusedError
        )
        gone = self._members.silent(address, self._loop.time(), refused)
        if gone:
            log.warning("peer %s does not answer (%s)", address, error or type(error).__name__)
            self._forget(gone)

    def _forget(self, gone: str) -> None:
        if gone not in self._members.live(self._loop.time()):  # nor at another address
            self._contents.forget(gone)

    def _own_states(self, to: str) -> dict[str, PeerState]:
        return self._contents.states_for(to, CONTENTS)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _shares_json(shares: Mapping[str, PeerState]) -> dict[str, list[str]]:
    return {key: [f"{number:x}" for number in share] for key, share in shares.items()}


def _shares(data: Mapping[str, Any]) -> dict[str, PeerState]:
    """Raises ValueError or TypeError for anything but `_shares_json`'s output."""
    return {str(key): PeerState(*(int(one, 16) for one in share)) for key, share in data.items()}
