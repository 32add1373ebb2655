"""Whether a replica is ready: `GET /readyz` on its address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp

from hotplate.deploy.process.printable import printable
from hotplate.machine.unix_address import short_path, unix_path

MOST_BYTES = 100
"""Of what is answered with another status than 200, which is shown."""


@dataclass(frozen=True)
class ProbeSettings:
    """How often and how patiently a replica is asked."""

    interval_s: float = 10.0
    """Between two checks of a ready replica."""
    timeout_s: float = 5.0
    """For the answer of a replica that has once been ready."""
    failures: int = 3
    """Checks that fail in a row until a ready replica counts as unready."""
    startup_timeout_s: float = 60.0
    """For one answer during start-up: the port accepts, and answers once the service stands."""
    first_pause_s: float = 0.1
    """After the first answer that is not 200 during start-up; each further pause is doubled."""
    max_pause_s: float = 1.0
    """Longest pause during start-up, and pause between the checks of an unready replica."""
    silence_margin_s: float = 10.0
    """How long beyond its requests' timeout an unready replica may answer nothing at all: then
    whatever blocks it can no longer be a request that is still in time."""


@dataclass(frozen=True)
class ProbeResult:
    """What one check has shown."""

    why_not: str = ""
    """Why it is unready; "" if it is not."""
    silent_s: float = 0.0
    """For how long it has been unready and given no answer at all."""


@asynccontextmanager
async def asking(address: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A session for what listens at `host:port`, or at `unix:` and a socket's path.

    Each check has a connection of its own: several workers may share the socket.
    """
    path = unix_path(address)
    connector: aiohttp.BaseConnector
    with ExitStack() as kept:
        if path is None:
            connector, url = aiohttp.TCPConnector(force_close=True), f"http://{address}"
        else:
            name = kept.enter_context(short_path(path))
            connector, url = aiohttp.UnixConnector(name, force_close=True), "http://localhost"
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(url, connector=connector, cookie_jar=jar) as http:
            yield http


class Probe:
    """Asks one replica."""

    def __init__(self, http: aiohttp.ClientSession, url: str, settings: ProbeSettings) -> None:
        """`url` may be what follows the session's own."""
        self._http = http
        self.url = url
        self._settings = settings

    async def until_ready(self, tell: Callable[[str], None] = lambda why_not: None) -> None:
        """Return at the first 200; a request that is held until then *is* the wait. `tell` hears
        what is answered in its place, whenever that changes."""
        pause_s, told = self._settings.first_pause_s, ""
        while True:
            why_not, answered = await self._ask(self._settings.startup_timeout_s)
            if not why_not:
                return
            if answered and why_not != told:
                tell(told := why_not)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, self._settings.max_pause_s)

    async def health(self) -> AsyncGenerator[ProbeResult, None]:
        """For a replica that was ready: check for ever.

        It is unready after `failures` failed checks in a row, ready again after one good one.
        """
        settings, clock = self._settings, asyncio.get_running_loop().time
        failures = 0
        silent_since: float | None = None
        while True:
            why_not, answered = await self._ask(settings.timeout_s)
            failures = failures + 1 if why_not else 0
            if failures < settings.failures:
                silent_since = None
                yield ProbeResult()
                await asyncio.sleep(settings.interval_s)
                continue
            now = clock()
            silent_since = now if answered or silent_since is None else silent_since
            yield ProbeResult(
                f"its last {settings.failures} readiness checks failed: {why_not}",
                silent_s=now - silent_since,
            )
            await asyncio.sleep(settings.max_pause_s)

    async def _ask(self, timeout_s: float) -> tuple[str, bool]:
        """Why it is not ready, "" if it answers 200; and whether it has answered anything."""
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._http.get(self.url, timeout=timeout, allow_redirects=False) as answer:
                if answer.status == 200:
                    return "", True
                body = (await answer.content.read(MOST_BYTES)).decode(errors="replace")
                said = " ".join(printable(body).split())
                return f"HTTP {answer.status}" + (f" ({said})" if said else ""), True
        except TimeoutError:
            return f"no answer within {timeout_s:g} s", False
        except (aiohttp.ClientError, OSError) as error:
            return str(error) or type(error).__name__, False
