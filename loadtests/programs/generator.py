"""Closed-loop clients: each posts 1 KiB (or `--body`), waits for the answer, and posts again.

A client with patience leaves when no answer came in that time: it drops its connection, makes
a new one and posts again at once. A client that is refused comes back after `Retry-After`.
They print what they saw when their time is over, and go on until they are stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import urllib.parse
from dataclasses import asdict
from time import perf_counter as clock  # uvloop's own time is in whole milliseconds
from typing import cast

import httptools
import uvloop

from loadtests.harness.route_plan import ORGANIZATION
from loadtests.systems.load import Load

BODY = b'{"text": "%b"}' % (b"x" * 1012)
COMEBACK_S = 1.0
"""How long a refused client waits if the response has no `Retry-After`."""
AFTER_FAILURE_S = 0.1


class Tally:
    """Counts what happens after the warm-up."""

    def __init__(self, warmup_s: float) -> None:
        self._begins_at = clock() + warmup_s
        self._latencies_s: list[float] = []
        self._counts = {"refused": 0, "left": 0, "failed": 0}

    def answered(self, latency_s: float) -> None:
        if clock() >= self._begins_at:
            self._latencies_s.append(latency_s)

    def count(self, outcome: str) -> None:
        """`refused`, `left` or `failed`."""
        self._counts[outcome] += clock() >= self._begins_at

    def load(self) -> Load:
        found = self._latencies_s
        cuts = statistics.quantiles(found, n=100) if len(found) > 1 else (found or [0.0]) * 99
        return Load(
            len(found),
            **self._counts,
            seconds=clock() - self._begins_at,
            mean_ms=statistics.fmean(found or [0.0]) * 1000,
            p50_ms=cuts[49] * 1000,
            p95_ms=cuts[94] * 1000,
            p99_ms=cuts[98] * 1000,
        )


class Client(asyncio.Protocol):
    """One client, over as many connections as it needs, one at a time."""

    def __init__(
        self,
        url: str,
        socket: str,
        body: bytes,
        organization: str,
        patience_s: float,
        tally: Tally,
    ) -> None:
        """`socket` is the path of a Unix socket, in place of the URL's host; empty = none."""
        where = urllib.parse.urlsplit(url)
        self._socket = socket
        self._host, self._port = where.hostname or "", where.port or 80
        self._request = (
            f"POST {where.path or '/'} HTTP/1.1\r\nHost: {where.netloc}\r\n"
            f"{ORGANIZATION}: {organization}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self._patience_s = patience_s
        self._tally = tally
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser
        self._retry_after_s = COMEBACK_S
        self._sent_at = 0.0
        self._leaves: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None

    def connect(self) -> None:
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            if self._socket:
                await self._loop.create_unix_connection(lambda: self, self._socket)
            else:
                await self._loop.create_connection(lambda: self, self._host, self._port)
        except OSError:
            self._tally.count("failed")
            self._loop.call_later(AFTER_FAILURE_S, self.connect)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class
        self._post()

    def _post(self) -> None:
        if self._transport is None:
            return
        self._parser = httptools.HttpResponseParser(self)
        self._retry_after_s = COMEBACK_S
        self._sent_at = clock()
        if self._patience_s:
            self._leaves = self._loop.call_later(self._patience_s, self._leave)
        self._transport.write(self._request)

    def _leave(self) -> None:
        assert self._transport is not None
        self._tally.count("left")
        self._drop()
        self.connect()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after" and value.isdigit():
            self._retry_after_s = float(value)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # our worker says that its handler begins
            return
        if self._leaves is not None:
            self._leaves.cancel()
        keeps = self._parser.should_keep_alive()
        if not keeps:
            self._drop()
        proceed = self._post if keeps else self.connect
        if self._parser.get_status_code() == 200:
            self._tally.answered(clock() - self._sent_at)
            proceed()
        else:
            self._tally.count("refused")
            self._loop.call_later(self._retry_after_s, proceed)

    def _drop(self) -> None:
        """Ends the connection; what happens on it no longer counts."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = None
        self._tally.count("failed")
        if self._leaves is not None:
            self._leaves.cancel()
        self._loop.call_later(AFTER_FAILURE_S, self.connect)


async def run(flags: argparse.Namespace) -> None:
    tally = Tally(flags.warmup)
    body = flags.body.encode() or BODY
    for _ in range(flags.clients):
        client = Client(flags.url, flags.socket, body, flags.organization, flags.patience, tally)
        client.connect()
    await asyncio.sleep(flags.warmup + flags.seconds)
    print(json.dumps(asdict(tally.load())), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--socket", default="", help="a Unix socket, in place of the URL's host")
    parser.add_argument("--body", default="")
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warmup", type=float, default=0.0)
    parser.add_argument("--patience", type=float, default=0.0)
    parser.add_argument("--organization", default="acme")
    uvloop.run(run(parser.parse_args()))
