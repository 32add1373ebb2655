"""A program that calls a sibling with every HTTP library, as a service of ours does.

The URL of the sibling, with the secret, is in `INNER`; its argument is that of somebody else.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import sys
import urllib.request

import aiohttp
import httpx
import openai
import requests
import urllib3

from hotplate.serving.replica.inside.patches.siblings import Siblings


async def at_once(url: str) -> None:
    async with aiohttp.ClientSession(url, headers={"Authorization": "Bearer own"}) as session:
        async with session.post("/aiohttp", data=b"x") as answer:
            await answer.read()
        async with session.ws_connect("/websocket") as socket:
            await socket.receive()
    async with httpx.AsyncClient(base_url=url) as client:
        await client.get("/httpx-async")
    async with openai.AsyncOpenAI(base_url=f"{url}/openai", api_key="own") as client:
        await client.models.list()


def main() -> None:
    url, foreign = os.environ["INNER"], sys.argv[1]
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    siblings = Siblings({"Inner": url})
    siblings.hide_secrets()
    siblings.sign_requests()
    asyncio.run(at_once(url))
    httpx.get(f"{url}/httpx")
    httpx.get(f"{url}/redirected", params={"to": foreign}, follow_redirects=True)
    requests.post(f"{url}/requests", data=b"x", headers={"Authorization": "Bearer own"}, timeout=9)
    requests.get(f"{url}/redirected", params={"to": foreign}, timeout=9)
    urllib3.request("GET", f"{url}/urllib3")
    urllib.request.urlopen(f"{url}/urllib").read()
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    connection.request("GET", "/http.client")
    connection.getresponse().read()
    httpx.get(f"{foreign}/stranger")
    requests.get(f"{foreign}/stranger", timeout=9)


if __name__ == "__main__":
    main()
