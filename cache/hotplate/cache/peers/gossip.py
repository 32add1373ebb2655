"""How agents find each other and tell each other what they have. Runs on the event loop.

Each agent greets every other one about once a second, and at once when something has changed. A
greeting names the known agents, and carries this agent's `PeerState` of every content on its way
here, as hexadecimal numbers. The response carries the same of the contents that the greeting names.

    POST /v1/peers {"id", "port", "members": [HOST:PORT…], "shares": {KEY: [HAVE, FETCHES, …]}}
    →              {"id", "members": […], "shares": {KEY: [HAVE, FETCHES, …]}}
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
from hotplate.machine.address import Address
from hotplate.machine.background import BackgroundTasks

log = logging.getLogger(__name__)

GREET_S = 1.0
MIN_INTERVAL_S = 0.02
"""Between two greetings of one agent, however much changes."""
RESPONSE_S = 2.5
"""An agent that does not respond for that long is not there."""

CONTENTS = 128
"""Contents in one greeting: the most urgent ones. The others come later."""


class Gossip:
    """Keeps this agent and its peers informed of each other. Lives on the event loop."""

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
        """`port` is where this agent listens; `token` is the cluster's.

        `changes` is set when all peers are to be greeted at once.
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
        timeout = aiohttp.ClientTimeout(total=RESPONSE_S)
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout)

    async def close(self) -> None:
        await self._tasks.cancel()
        await self._session.close()

    def set_seeds(self, addresses: list[str]) -> None:
        """Replaces the operator's list of peers."""
        seeds = [one for one in addresses if self._may_greet(one)]
        self._members.set_seeds(seeds, self._loop.time())
        self._greet_all()

    def addresses(self) -> list[str]:
        """Where other agents respond."""
        return list(self._members.live(self._loop.time()).values())

    def status(self) -> list[dict[str, Any]]:
        """Every known address, as `/v1/status` shows it."""
        live = set(self.addresses())
        return [{"address": one, "live": one in live} for one in self._members.addresses()]

    def receive(self, host: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """The response to a greeting from that host. Raises KeyError, TypeError or ValueError for
        anything but a greeting."""
        peer, port = str(data["id"]), int(data["port"])
        states = _states(data["shares"])
        if peer != self._members.me:
            self._add_members([str(Address(host, port)), *map(str, data["members"])])
            self._contents.receive(peer, states, {})
        named = {
            key: one for key in states if (one := self._source.state_for(peer, key)) is not None
        }
        return {
            "id": self._members.me,
            "members": self.addresses(),
            "shares": _states_json({**self._own_states(peer), **named}),
        }

    def _add_members(self, addresses: list[str]) -> None:
        now = self._loop.time()
        if any([self._members.add(one, now) for one in addresses if self._may_greet(one)]):
            self._greet_all()

    def _may_greet(self, address: str) -> bool:
        """Whether an agent may be there: without a token, on this machine only."""
        try:
            host = Address.parse(address).host
            known = bool(self._token) or host == "localhost"
            return known or ipaddress.ip_address(host).is_loopback
        except ValueError:  # it is no address, or a name that may lead to another machine
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
                await asyncio.sleep(MIN_INTERVAL_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(GREET_S - MIN_INTERVAL_S):
                        await changed.wait()
        self._greeting.discard(address)

    async def _greet(self, address: str) -> None:
        states = self._own_states(self._members.id_at(address))
        greeting = {
            "id": self._members.me,
            "port": self._port,
            "members": self.addresses(),
            "shares": _states_json(states),
        }
        try:
            async with self._session.post(f"http://{address}/v1/peers", json=greeting) as response:
                response.raise_for_status()
                data = await response.json()
            peer, members = str(data["id"]), [str(one) for one in data["members"]]
            theirs = _states(data["shares"])
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
            self._unreachable(address, error)
            self._contents.settle()
            return
        before = self._members.responded(address, peer, self._loop.time())
        if before:
            self._forget(before)  # its agent was started again
        if peer != self._members.me:
            self._add_members(members)
            self._contents.receive(peer, theirs, states)
        self._contents.settle(address, states)

    def _unreachable(self, address: str, error: Exception) -> None:
        refused = isinstance(error, aiohttp.ClientConnectorError) and isinstance(
            error.os_error, ConnectionRefusedError
        )
        gone = self._members.unreachable(address, self._loop.time(), refused)
        if gone:
            log.warning("peer %s does not answer (%s)", address, error or type(error).__name__)
            self._forget(gone)

    def _forget(self, gone: str) -> None:
        if gone not in self._members.live(self._loop.time()):  # it may respond at another address
            self._contents.forget(gone)

    def _own_states(self, to: str) -> dict[str, PeerState]:
        return self._contents.states_for(to, CONTENTS)


def _states_json(states: Mapping[str, PeerState]) -> dict[str, list[str]]:
    return {key: [f"{number:x}" for number in state] for key, state in states.items()}


def _states(data: Mapping[str, Any]) -> dict[str, PeerState]:
    """Raises ValueError or TypeError for anything but `_states_json`'s output."""
    return {str(key): PeerState(*(int(one, 16) for one in state)) for key, state in data.items()}
