"""A client of the agent's control interface, for the rest of the platform."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal
from urllib.parse import quote

import aiohttp

from hotplate.cache.errors import CacheError
from hotplate.machine.access.metrics_reader import MetricsReader


@dataclass(frozen=True)
class TreeInfo:
    """How far a node has got with a tree."""

    root: str
    bytes_total: int
    bytes_verified: int
    complete: bool
    """Whether every file can be read by anybody, streamed ones included."""
    view: str
    """Where links to arriving files lead, and reads wait; "" without a file view."""
    absent: tuple[str, ...]
    """Paths of files that are absent until they are complete."""


PATIENCE_S = 20.0
"""How long requests to an agent that does not answer are repeated: it may be restarting."""
RETRY_S = 0.2


class AgentClient:
    """Talks to one agent. Every method raises the agent's CacheError, or a plain one.

    All its requests may be repeated, so they are when the agent is gone for a moment.
    """

    def __init__(self, url: str, token: str = "", patience_s: float = PATIENCE_S) -> None:
        self.url = url.rstrip("/")
        self._patience_s = patience_s
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def tree(
        self, manifest: str, wait: Literal["view", "files", "all"] = "files"
    ) -> TreeInfo:
        """Brings a tree to the node, or joins a fetch that is under way.

        Returns when the files that are not streamed are there (`files`), or every file
        (`all`). Takes as long as that takes. `view` shows the tree at once and brings bytes as
        they are read; where the node has no file view, it is `all`.
        """
        return _tree(await self._call("PUT", f"/v1/trees/{manifest}?wait={wait}"))

    async def progress(self, manifest: str) -> TreeInfo:
        """How far a tree has got that was asked for."""
        return _tree(await self._call("GET", f"/v1/trees/{manifest}"))

    async def idle_s(self) -> dict[str, float]:
        """For how many seconds each tree of the node was not asked for, by manifest."""
        found: dict[str, float] = (await self._call("GET", "/v1/trees"))["idle_s"]
        return found

    async def delete(self, manifest: str, idle_s: float = 0.0) -> bool:
        """Removes a tree, and the blobs that no other tree names; whether it did.

        A tree that was asked for in the last `idle_s` stays.
        """
        answer = await self._call("DELETE", f"/v1/trees/{manifest}?idle_s={idle_s}")
        return bool(answer["deleted"])

    async def admit(self, path: str, manifests: Iterable[str]) -> None:
        """Opens a socket at `path` through which these trees' files can be read and nothing else.

        It is there as long as its folder is, also over restarts of the agent.
        """
        await self._call("PUT", f"/v1/doors?path={quote(path)}&manifests={','.join(manifests)}")

    async def check(self) -> None:
        """Returns when the agent answers at all."""
        await self._call("GET", "/healthz")

    async def set_readers(self, readers: Iterable[MetricsReader]) -> None:
        """Says who may read the agent's metrics, beside the tokens that it was started with."""
        await self._call("PUT", "/v1/readers", {"readers": [asdict(each) for each in readers]})

    async def troubles(self) -> list[str]:
        """A sentence for each tier that has no room for what it should keep."""
        found: list[str] = (await self._call("GET", "/v1/troubles"))["troubles"]
        return found

    async def refusals(self) -> list[str]:
        """A sentence for each volume that it has refused in the last ten minutes."""
        found: list[str] = (await self._call("GET", "/v1/troubles"))["refusals"]
        return found

    async def status(self) -> dict[str, Any]:
        """`socket`, `origin_bytes`, `disk_bytes`, `arena_bytes`, `blobs`, `trees`."""
        return await self._call("GET", "/v1/status")

    async def pull(self, url: str) -> dict[str, Any]:
        """Brings all files of a URL to the node, or joins a pull that is under way: `bytes`,
        `seconds`, `from_origin_bytes`, `from_peers_bytes`. Takes as long as that takes."""
        return await self._call("PUT", f"/v1/pulls?url={quote(url, safe='')}")

    async def pull_to_disk(self, url: str) -> dict[str, str]:
        """As `pull`; where each file lies on the node's disk, by the file's URL.

        A file that is not linked soon may be evicted for others.
        """
        answer = await self._call("PUT", f"/v1/pulls?url={quote(url, safe='')}&wait=disk")
        files: dict[str, str] = answer["files"]
        return files

    async def pull_progress(self, url: str) -> dict[str, Any]:
        """How far a pull has got: `bytes_total` (None while it is listed), `bytes_verified`,
        `from_origin_bytes`, `from_peers_bytes`, `complete`."""
        return await self._call("GET", f"/v1/pulls?url={quote(url, safe='')}")

    async def location(self, url: str) -> dict[str, Any]:
        """The node's ledger entry of a URL: `location`, `files`, `chunks`."""
        return await self._call("GET", f"/v1/locations?url={quote(url, safe='')}")

    async def held(self) -> list[dict[str, Any]]:
        """What the node has: `name`, `kind` (url or tree), `files`, `bytes`, `memory_bytes`,
        `disk_bytes`, `pinned`."""
        found: list[dict[str, Any]] = (await self._call("GET", "/v1/held"))["items"]
        return found

    async def verify(self) -> dict[str, Any]:
        """Reads all that the node has: `blobs`, `bytes`, `bad` (names; these are dropped)."""
        return await self._call("POST", "/v1/held/verify")

    async def warm(self, name: str) -> int:
        """Brings a URL or tree into memory; its bytes."""
        answer = await self._call("PUT", f"/v1/held?name={quote(name, safe='')}")
        return int(answer["bytes"])

    async def remove(self, name: str) -> int:
        """Drops a URL, tree or blob; the bytes that became free."""
        answer = await self._call("DELETE", f"/v1/held?name={quote(name, safe='')}")
        return int(answer["bytes"])

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _call(self, method: str, path: str, sent: Any = None) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        gone_since = None
        while True:
            try:
                body = await self._ask(method, path, sent)
                break
            except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
                gone_since = gone_since or loop.time()
                patient = isinstance(exc, aiohttp.ClientConnectionError)
                if not patient or loop.time() - gone_since >= self._patience_s:
                    raise CacheError(
                        f"agent {self.url} does not answer ({exc or type(exc).__name__}); "
                        "is it running?"
                    ) from exc
            await asyncio.sleep(RETRY_S)
        if "error" in body:
            raise error_of(body["error"])
        return body

    async def _ask(self, method: str, path: str, sent: Any) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers, timeout=aiohttp.ClientTimeout(total=None, sock_connect=10)
            )
        async with self._session.request(method, self.url + path, json=sent) as response:
            body: dict[str, Any] = await response.json()
            return body


def error_of(data: dict[str, str]) -> CacheError:
    """The error in an agent's response."""
    kinds = {kind.code: kind for kind in _kinds(CacheError)}
    return kinds.get(data["code"], CacheError)(data["message"])


def _kinds(kind: type[CacheError]) -> Iterator[type[CacheError]]:
    yield kind
    for sub in kind.__subclasses__():
        yield from _kinds(sub)


def _tree(body: dict[str, Any]) -> TreeInfo:
    return TreeInfo(
        body["root"],
        body["bytes_total"],
        body["bytes_verified"],
        body["complete"],
        body["view"],
        tuple(body["absent"]),
    )
