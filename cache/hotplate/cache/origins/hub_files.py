"""Models of a Hugging Face hub.

A revision is resolved to its commit when it is looked up, and files are known by the commit: their
versions stay when a branch moves. Endpoint and token are `HF_ENDPOINT` and `HF_TOKEN` of the
agent's environment, where the URL names no other endpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import quote

from hotplate.cache.errors import OriginUnavailable, UnknownUrl
from hotplate.cache.member_path import PathTree
from hotplate.cache.origins.blob_source import ByteSource
from hotplate.cache.origins.http_client import HttpClient, HttpResponse
from hotplate.cache.origins.http_files import HttpSource, refusal, tag_of
from hotplate.cache.origins.hub_url import HubUrl, is_commit
from hotplate.cache.origins.hubs import own_hub
from hotplate.cache.origins.locations import Location, Version

_INFO_BYTES = 8 << 20
_FILES_MAX = 10_000
"""Files of one model; each is looked up once before any of them is brought."""
_ASKED_AT_ONCE = 8


class HubFiles:
    """Files of models at a hub."""

    def __init__(self, client: HttpClient, environ: Mapping[str, str]) -> None:
        """`environ` has `HF_ENDPOINT` and `HF_TOKEN`, where they are set."""
        self._client = client
        self._endpoint = own_hub(environ)
        self._token = environ.get("HF_TOKEN", "")

    def find(self, url: str) -> Location:
        asked = HubUrl.of(url)
        commit, names = self._info(asked)
        names = [name for name in names if asked.names(name)]
        if not names:
            raise UnknownUrl(f"there is no file at {url}; check the URL")
        _check_tree(url, names)
        files = [HubUrl(asked.model_id, commit, name, asked.endpoint) for name in sorted(names)]
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
            return Location(url, tuple(pool.map(self._version, files)))

    def source(self, version: Version) -> ByteSource:
        file = HubUrl.of(version.url)
        # Bytes may come from another server, with tags of its own; a commit never changes.
        return HttpSource(
            self._client,
            version,
            lambda: self._address(file),
            self._headers(file),
            tagged=False,
        )

    def _info(self, asked: HubUrl) -> tuple[str, list[str]]:
        """The commit of the revision now, and the names of its files."""
        where = f"{self._root(asked)}/api/models/{asked.model_id}/revision"
        url = f"{where}/{quote(asked.revision, safe='')}"
        with self._ask("GET", url, asked) as response:
            data = response.read_all(_INFO_BYTES)
        try:
            info = json.loads(data)
            names = [str(one["rfilename"]) for one in info["siblings"]]
            commit = str(info["sha"])
        except (KeyError, TypeError, ValueError, RecursionError) as exc:
            raise OriginUnavailable(
                f"{url} answered something other than a model's files ({exc!r:.200})"
            ) from exc
        if not is_commit(commit):
            raise OriginUnavailable(f"{url} names a commit {commit[:80]!r}, which is no hash")
        return commit, names

    def _version(self, file: HubUrl) -> Version:
        with self._ask("HEAD", self._address(file), file) as response:
            headers = response.headers
        commit = headers.get("x-repo-commit", file.revision)
        length = headers.get("x-linked-size") or headers.get("content-length", "")
        if commit != file.revision or re.fullmatch("[0-9]{1,15}", length) is None:
            raise OriginUnavailable(
                f"the hub has {file} at commit {commit[:80]!r} with {length[:80]!r} bytes; "
                "ask again"
            )
        tag = headers.get("x-linked-etag") or tag_of(headers)
        return Version(str(file), int(length), tag)

    @contextmanager
    def _ask(self, method: str, url: str, of: HubUrl) -> Iterator[HttpResponse]:
        """Follows redirects on the hub only: other servers do not know the commit."""
        with self._client.ask(method, url, self._headers(of), leave=False) as response:
            if response.status not in (200, 302, 307):
                raise refusal(url, response.status)
            yield response

    def _address(self, file: HubUrl) -> str:
        return (
            f"{self._root(file)}/{file.model_id}/resolve/"
            f"{quote(file.revision, safe='')}/{quote(file.path)}"
        )

    def _root(self, at: HubUrl) -> str:
        return (at.endpoint or self._endpoint).rstrip("/")

    def _headers(self, at: HubUrl) -> dict[str, str]:
        """Sends the token to the agent's own hub only: a bento may name another hub."""
        own = not at.endpoint or at.endpoint.rstrip("/") == self._endpoint.rstrip("/")
        return {"Authorization": f"Bearer {self._token}"} if own and self._token else {}


def _check_tree(url: str, names: list[str]) -> None:
    """Raises UnknownUrl for files that cannot lie side by side in one folder."""
    if len(names) > _FILES_MAX:
        raise UnknownUrl(f"{url} has {len(names)} files; a model may have {_FILES_MAX}")
    tree = PathTree()
    for name in names:
        try:
            tree.add(name, folder=False)
        except ValueError as exc:
            raise UnknownUrl(f"{url}: {name[:200]!r} is no file of a model: {exc}") from exc
    try:
        tree.check()
    except ValueError as exc:
        raise UnknownUrl(f"{url} is no model: {exc}") from exc
