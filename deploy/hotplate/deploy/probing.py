"""Whether a replica is ready: `GET /readyz` on its address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import aiohttp


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


class Probe:
    """Asks one replica."""

    def __init__(self, http: aiohttp.ClientSession, url: str, settings: ProbeSettings) -> None:
        self._http = http
        self.url = url
        self._settings = settings

    async def until_ready(self) -> None:
        """Return at the first 200; a request that is held until then *is* the wait."""
        pause_s = self._settings.first_pause_s
        while await self._why_not(self._settings.startup_timeout_s):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, self._settings.max_pause_s)

    async def verdicts(self) -> AsyncGenerator[str, None]:
        """For a replica that was ready: check for ever; yields why it is unready, "" if it is not.

        It is unready after `failures` failed checks in a row, ready again after one good one.
        """
        failures = 0
        while True:
            why_not = await self._why_not(self._settings.timeout_s)
            failures = failures + 1 if why_not else 0
            unready = failures >= self._settings.failures
            yield f"its last {failures} readiness checks failed: {why_not}" if unready else ""
            pause_s = self._settings.max_pause_s if unready else self._settings.interval_s
            await asyncio.sleep(pause_s)

    async def _why_not(self, timeout_s: float) -> str:
        """ "" if the replica answers 200."""
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._http.get(self.url, timeout=timeout, allow_redirects=False) as answer:
                return "" if answer.status == 200 else f"HTTP {answer.status}"
        except TimeoutError:
            return f"no answer within {timeout_s:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return str(error) or type(error).__name__
