"""How agents find each other and tell each other what they have. Runs on the event loop.

Each agent greets each other one about once a second, and at once when there is news. A greeting
says who is known, and of every content on its way here what `Share` holds, as hexadecimal numbers.
The answer says the same of the contents asked for.

    POST /v1/peers {"id", "port", "members": [HOST:PORT…], "shares": {KEY: [HAVE, CLAIMS, …]}}
    →              {"id", "members": […], "shares": {KEY: [HAVE, CLAIMS, …]}}
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Mapping
from typing import Any

import aiohttp

from hotplate.cache.fetching.fetch import Fetch
from hotplate.cache.fetching.fetcher import Fetcher
from hotplate.cache.peers.chunk_client import PeerClient
from hotplate.cache.peers.chunk_source import Shelf
from hotplate.cache.peers.members import Members
from hotplate.cache.swarm.chunk_request import PeerAsk, Request
from hotplate.cache.swarm.participants import Share

log = logging.getLogger(__name__)

GREET_S = 1.0
NEWS_S = 0.02
"""At most so often."""
ANSWER_S = 2.5
"""Who does not answer for that long is not there."""

CONTENTS = 128
"""Contents named in one greeting: those to be fetched first. The others come later."""


class Gossip:
    """The agents that this one knows. Also the fetcher's `Peers`: methods marked so are called on
    its threads."""

    def __init__(self, me: str, port: int, token: str, client: PeerClient) -> None:
        self.me = me
        self.members = Members(me)
        self._port = port
        self._token = token
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._told: dict[str, set[str]] = {}  # who was asked for their share, by content
        self._session: aiohttp.ClientSession | None = None
        self._fetcher: Fetcher
        self._shelf: Shelf

    def open(self, fetcher: Fetcher, shelf: Shelf) -> None:
        """To be called once, before anything else."""
        self._fetcher, self._shelf = fetcher, shelf
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        self._client.close()

    def tell(self, addresses: list[str]) -> None:
        """The operator's list of peers, as it is now."""
        self.members.tell([one for one in addresses if self._may_ask(one)], self._loop.time())
        self._greet_all()

    def ask(self, peer: str, ask: PeerAsk) -> Request | None:
        """On a fetcher's thread."""
        address = self.members.reach(peer, self._fetcher.clock())
        if address is None:
            return None
        return self._client.ask(address, ask)

    def begun(self, key: str) -> None:
        """On the loop: a fetch has begun."""
        self._told[key] = set()
        self._settle(self._loop.time())
        self._wake()

    def news(self) -> None:
        """On a fetcher's thread: chunks were taken from the origin, or came."""
        self._loop.call_soon_threadsafe(self._wake)

    def addresses(self) -> list[str]:
        """Where other agents answer."""
        return self._live()

    def status(self) -> list[dict[str, Any]]:
        """Every known address, for people."""
        live = set(self._live())
        return [{"address": one, "live": one in live} for one in self.members.addresses()]

    def _wake(self) -> None:
        for event in self._news.values():
            event.set()

    def hear(self, host: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a greeting from that host. Raises KeyError, TypeError or ValueError."""
        peer, port = str(data["id"]), int(data["port"])
        shares = _shares(data["shares"])
        if peer != self.me:
            self._hear_of([_address(host, port), *map(str, data["members"])])
            self._learn(peer, shares, {})
        answer = {key: one for key in shares if (one := self._shelf.share(key, peer)) is not None}
        return {
            "id": self.me,
            "members": self._live(),
            "shares": _shares_json({**self._own_shares(peer), **answer}),
        }

    def _hear_of(self, addresses: list[str]) -> None:
        now = self._loop.time()
        if any([self.members.hear_of(one, now) for one in addresses if self._may_ask(one)]):
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
        for address in self.members.addresses():
            if address not in self._tasks:
                self._news[address] = asyncio.Event()
                self._tasks[address] = self._loop.create_task(self._keep_greeting(address))

    async def _keep_greeting(self, address: str) -> None:
        event = self._news[address]
        while address in self.members.addresses():
            event.clear()
            await self._greet(address)
            await asyncio.sleep(NEWS_S)
            try:
                async with asyncio.timeout(GREET_S - NEWS_S):
                    await event.wait()
            except TimeoutError:
                continue
        del self._tasks[address], self._news[address]

    async def _greet(self, address: str) -> None:
        assert self._session is not None
        shares = self._own_shares(self.members.at(address))
        greeting = {
            "id": self.me,
            "port": self._port,
            "members": self._live(),
            "shares": _shares_json(shares),
        }
        try:
            async with self._session.post(f"http://{address}/v1/peers", json=greeting) as response:
                response.raise_for_status()
                data = await response.json()
            peer, members = str(data["id"]), [str(one) for one in data["members"]]
            theirs = _shares(data["shares"])
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
            self._silent(address, error)
        else:
            before = self.members.met(address, peer, self._loop.time())
            if before:
                self._forget(before)  # its agent was started again
            if peer != self.me:
                self._hear_of(members)
                self._learn(peer, theirs, shares)
            for key in shares:
                if key in self._told:
                    self._told[key].add(address)
        self._settle(self._loop.time())

    def _silent(self, address: str, error: Exception) -> None:
        refused = isinstance(error, aiohttp.ClientConnectorError) and isinstance(
            error.os_error, ConnectionRefusedError
        )
        gone = self.members.silent(address, self._loop.time(), refused)
        if gone:
            log.warning("peer %s does not answer (%s)", address, error or type(error).__name__)
            self._forget(gone)

    def _forget(self, gone: str) -> None:
        now = self._loop.time()
        if gone in self.members.live(now):
            return  # at another address
        with self._fetcher.work:
            for fetch in self._fetcher.current():
                fetch.swarm.forget(gone, now)
            self._spread()

    def _live(self) -> list[str]:
        return list(self.members.live(self._loop.time()).values())

    def _named(self) -> list[Fetch]:
        return self._fetcher.current()[:CONTENTS]

    def _own_shares(self, to: str) -> dict[str, Share]:
        with self._fetcher.work:
            return {one.key: one.swarm.say(to) for one in self._named()}

    def _learn(self, peer: str, theirs: Mapping[str, Share], asked: Mapping[str, Share]) -> None:
        """What a peer has; of what was `asked` for and not named it has nothing."""
        now = self._loop.time()
        with self._fetcher.work:
            for fetch in self._fetcher.current():
                share = theirs.get(fetch.key)
                if share is not None:
                    fetch.swarm.learn(peer, share, now)
                elif fetch.key in asked:
                    fetch.swarm.forget(peer, now, asked[fetch.key].number)
            self._spread()

    def _spread(self) -> None:
        """Acts on what was learnt: here, and where it is news. With the fetcher's `work` held."""
        fetches = [one for one in self._fetcher.current() if one.swarm.news]
        for fetch in fetches:
            fetch.swarm.news = False
        if fetches:
            self._wake()
        self._fetcher.work.notify()

    def _settle(self, now: float) -> None:
        """Lets those contents be fetched from the origin whose shares all peers have told."""
        awaited = self.members.awaited(now)
        with self._fetcher.work:
            keys = {one.key for one in self._fetcher.current()}
            self._told = {key: told for key, told in self._told.items() if key in keys}
            for fetch in self._fetcher.current():
                if not fetch.swarm.settled and awaited <= self._told.setdefault(fetch.key, set()):
                    fetch.swarm.settled = True
                    self._fetcher.work.notify()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _shares_json(shares: Mapping[str, Share]) -> dict[str, list[str]]:
    return {key: [f"{number:x}" for number in share] for key, share in shares.items()}


def _shares(data: Mapping[str, Any]) -> dict[str, Share]:
    """Raises ValueError or TypeError for anything but `_shares_json`'s output."""
    return {str(key): Share(*(int(one, 16) for one in share)) for key, share in data.items()}
