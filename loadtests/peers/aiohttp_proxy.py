"""The proxy that one writes in an afternoon: aiohttp on both sides, a semaphore for the slots.

On uvloop, like the gateway, with keep-alive to the backend. aiohttp lets a handler go on when
its caller has left, so a slot comes back when the backend has answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping

import aiohttp
import uvloop
from aiohttp import web

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class SemaphoreProxy:
    def __init__(self, backend: str, slots: int, session: aiohttp.ClientSession) -> None:
        self._backend = backend
        self._slots = asyncio.Semaphore(slots)
        self._session = session

    async def forward(self, request: web.Request) -> web.Response:
        body = await request.read()
        async with (
            self._slots,
            self._session.request(
                request.method,
                self._backend + request.raw_path,
                data=body,
                headers=_end_to_end(request.headers),
            ) as answer,
        ):
            return web.Response(
                status=answer.status,
                body=await answer.read(),
                headers=_end_to_end(answer.headers),
            )


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}


async def serve(backend: str, slots: int) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", SemaphoreProxy(backend, slots, session).forward)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=2048).start()
        print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", required=True, help="URL")
    parser.add_argument("--slots", type=int, required=True)
    flags = parser.parse_args()
    uvloop.run(serve(flags.backend, flags.slots))
