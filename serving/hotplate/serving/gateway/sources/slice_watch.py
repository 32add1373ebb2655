"""Follows the EndpointSlices of our pods at the API server of Kubernetes: a list, then a watch."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp

from hotplate.serving.gateway.protocol.api_server import ApiServer
from hotplate.serving.gateway.sources.pods import Pod, pods_in, service_of

log = logging.getLogger(__name__)

PATH = "/apis/discovery.k8s.io/v1/endpointslices"
OURS = "app.kubernetes.io/part-of=hotplate"
PAGE = 500
WATCH_S = 30
"""A watch ends by itself after this, and the next one begins where it was."""
SILENT_S = WATCH_S + 5.0
"""A connection on which nothing has come for this long is dead."""
ANSWER_S = 10.0
BACKOFF_S = (0.1, 5.0)
"""First and longest pause before it is asked again."""
GONE = 410


class ListAnew(Exception):
    """The server no longer knows what has happened since the last answer."""


class SliceWatch:
    """What was heard last. While the server is away, that stays."""

    def __init__(self, api: ApiServer, changed: Callable[[], None]) -> None:
        self._api = api
        self._changed = changed
        self._slices: dict[str, tuple[str, Sequence[Pod]]] = {}
        """By the slice's `namespace/name`: its Service, and its pods."""
        self._version = ""
        """As of which a watch begins; empty = a list is needed."""

    @property
    def pods(self) -> Mapping[str, Sequence[Pod]]:
        """By Service; a pod that two slices have stands there once."""
        found: dict[str, dict[str, Pod]] = {}
        for service, pods in self._slices.values():
            found.setdefault(service, {}).update({pod.uid: pod for pod in pods})
        return {service: list(pods.values()) for service, pods in found.items()}

    async def run(self) -> None:
        """Follows until cancelled."""
        pause = BACKOFF_S[0]
        trust = ssl.create_default_context(cafile=str(self._api.account / "ca.crt"))
        connector = aiohttp.TCPConnector(ssl=trust)
        async with aiohttp.ClientSession(self._api.url, connector=connector) as session:
            while True:
                try:
                    if not self._version:
                        await self._list(session)
                    await self._watch(session)
                    pause = BACKOFF_S[0]
                except ListAnew:
                    self._version = ""
                except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError) as error:
                    if pause == BACKOFF_S[0]:  # once, not with every try
                        log.warning("the API server of Kubernetes: %r; it is asked again", error)
                else:
                    await asyncio.sleep(pause)
                    continue
                await asyncio.sleep(pause)
                pause = min(BACKOFF_S[1], 2 * pause)

    # Inside

    async def _list(self, session: aiohttp.ClientSession) -> None:
        slices: dict[str, tuple[str, Sequence[Pod]]] = {}
        more, version = "", ""
        while True:
            asked = {"limit": str(PAGE), **({"continue": more} if more else {})}
            async with asyncio.timeout(ANSWER_S), self._get(session, asked) as answer:
                _check(answer)
                page = await answer.json()
            for item in page["items"]:
                slices[_name_of(item)] = service_of(item), pods_in(item)
            version = page["metadata"]["resourceVersion"]
            more = page["metadata"].get("continue", "")
            if not more:
                break
        self._slices, self._version = slices, version
        self._changed()

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        asked = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_S),
        }
        async with self._get(session, asked) as answer:
            async for line in _lines(answer):
                self._hear(json.loads(line))

    def _hear(self, event: Mapping[str, Any]) -> None:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            if item.get("code") == GONE:
                raise ListAnew
            raise ValueError(item.get("message", "an error without a message"))
        self._version = item["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        if kind == "DELETED":
            self._slices.pop(_name_of(item), None)
        else:
            self._slices[_name_of(item)] = service_of(item), pods_in(item)
        self._changed()

    def _get(
        self, session: aiohttp.ClientSession, asked: Mapping[str, str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        token = (self._api.account / "token").read_text().strip()
        return session.get(
            PATH,
            params={"labelSelector": OURS, **asked},
            headers={"Authorization": f"Bearer {token}"},
            timeout=aiohttp.ClientTimeout(sock_connect=ANSWER_S, sock_read=SILENT_S),
        )


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of an answer, however long they are."""
    _check(answer)
    rest = b""
    async for piece in answer.content.iter_any():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line


def _check(answer: aiohttp.ClientResponse) -> None:
    """Raises ListAnew and aiohttp's errors."""
    if answer.status == GONE:
        raise ListAnew
    answer.raise_for_status()


def _name_of(item: Mapping[str, Any]) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"
