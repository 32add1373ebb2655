"""Asking a Prometheus what queries say now."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from hotplate.autoscaler.binary import Reading

TIMEOUT_S = 5.0
"""For one answer; later ones are as good as none."""

MOST_BYTES = 4 << 20
"""Of one answer, which is to be a few numbers; it is read by the process that runs everything."""

QUERY_INVALID = "QueryInvalid"
"""How the problem of a query begins that no waiting will cure."""

_PASSING = ("timeout", "canceled", "unavailable", "internal")
"""Errors of Prometheus that say nothing of the query."""


class Prometheus:
    """The HTTP API of a Prometheus at a URL; empty = there is none."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._http: ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    async def read(self, query: str, up: str) -> Reading:
        """What a query says now: its largest sample. One that is 0, or no sample at all, counts
        only while `up` says that its target is up; else it is not known.
        """
        values, problem = await self._samples(query)
        at = asyncio.get_running_loop().time()
        if problem:
            return Reading(None, problem, at)
        most = max((value for value in values if not math.isnan(value)), default=0.0)
        if most > 0:
            return Reading(most, at=at)
        if any(map(math.isnan, values)):
            return Reading(math.nan, at=at)
        states, problem = await self._samples(up)
        if not problem and not states:
            problem = f"no scraped target matches '{up}'"
        if not problem and not all(state == 1 for state in states):
            problem = f"a target of '{up}' is down, so the missing samples mean nothing"
        return Reading(None, problem, at) if problem else Reading(0.0, at=at)

    async def _samples(self, query: str) -> tuple[list[float], str]:
        """The values of an instant query, and why there are none to be had."""
        if not self._url:
            return [], "no Prometheus is configured: set prometheus_url of the platform"
        if self._http is None:
            self._http = ClientSession(timeout=ClientTimeout(TIMEOUT_S))
        try:
            url = f"{self._url}/api/v1/query"
            # Followed, a POST would lose its query.
            async with self._http.post(
                url, data={"query": query}, allow_redirects=False
            ) as response:
                body, status = await _body(response), response.status
        except TimeoutError:
            return [], f"Prometheus at {self._url} did not answer in {TIMEOUT_S:g} s"
        except (ClientError, ValueError) as error:
            return [], f"Prometheus at {self._url} cannot be reached ({error})"
        if len(body) > MOST_BYTES:
            limit = f"{MOST_BYTES >> 20} MiB"
            return [], f"'{query}' is answered with more than {limit}: aggregate its series"
        try:
            return _values(json.loads(body), query)
        except (ValueError, LookupError, TypeError, RecursionError):
            problem = f"Prometheus at {self._url} responds with {status} and no result"
            return (
                [],
                f"{problem}: check that prometheus_url names a Prometheus, and that it is ready",
            )


async def _body(response: ClientResponse) -> bytes:
    """The body of an answer, read until it is a little over `MOST_BYTES`."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > MOST_BYTES:
            break
    return bytes(body)


def _values(answer: Any, query: str) -> tuple[list[float], str]:
    if answer["status"] != "success":
        message = f"'{query}': {answer['error']}"
        if answer.get("errorType") in _PASSING:
            return [], f"Prometheus could not answer {message}"
        return [], f"{QUERY_INVALID}: Prometheus refuses {message}"
    data = answer["data"]
    if data["resultType"] == "vector":
        return [float(sample["value"][1]) for sample in data["result"]], ""
    if data["resultType"] == "scalar":
        return [float(data["result"][1])], ""
    return [], f"{QUERY_INVALID}: '{query}' gives a {data['resultType']}, not samples of now"
