"""Models of a Hugging Face hub.

A revision is frozen to its commit when it is looked up, and files are known by that: whatever a
branch becomes, their versions stay. Endpoint and token are `HF_ENDPOINT` and `HF_TOKEN` of the
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
from hotplate.cache.origins.http_client import Answer, HttpClient
from hotplate.cache.origins.http_files import HttpSource, refusal, tag_of
from hotplate.cache.origins.hub_url import HubUrl, is_commit
from hotplate.cache.origins.hubs import own_hub
from hotplate.cache.origins.locations import Location, Version

_INFO_BYTES = 8 << 20
_FILES_MAX = 10_000
"""Of one model; each is asked for once before any of them is brought."""
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
        # Bytes may come from elsewhere, which tags them in its own way: a commit never changes.
        return HttpSource(
            self._client,
            version,
            lambda: self._address(file),
            self._headers(file),
            tagged=False,
        )

    def _info(self, asked: HubUrl) -> tuple[str, list[str]]:
        """The commit that the revision is now, and the names of its files."""
        where = f"{self._root(asked)}/api/models/{asked.model_id}/revision"
        url = f"{where}/{quote(asked.revision, safe='')}"
        with self._ask("GET", url, asked) as answer:
            data = answer.read_all(_INFO_BYTES)
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
        with self._ask("HEAD", self._address(file), file) as answer:
            headers = answer.headers
        commit = headers.get("x-repo-commit", file.revision)
        length = headers.get("x-linked-size") or headers.get("content-length", "")
        if commit != file.revision or re.fullmatch("[0-9]{1,15}", length) is None:
            raise OriginUnavailable(
                f"{file} is of commit {commit[:80]!r} and has {length[:80]!r} bytes, says the hub; "
                "ask again"
            )
        tag = headers.get("x-linked-etag") or tag_of(headers)
        return Version(str(file), int(length), tag)

    @contextmanager
    def _ask(self, method: str, url: str, of: HubUrl) -> Iterator[Answer]:
        """Redirects are followed on the hub only: what is elsewhere does not know the commit."""
        with self._client.ask(method, url, self._headers(of), leave=False) as answer:
            if answer.status not in (200, 302, 307):
                raise refusal(url, answer.status)
            yield answer

    def _address(self, file: HubUrl) -> str:
        return (
            f"{self._root(file)}/{file.model_id}/resolve/"
            f"{quote(file.revision, safe='')}/{quote(file.path)}"
        )

    def _root(self, at: HubUrl) -> str:
        return (at.endpoint or self._endpoint).rstrip("/")

    def _headers(self, at: HubUrl) -> dict[str, str]:
        """The token is for the agent's own hub only: any bento may name another one."""
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
