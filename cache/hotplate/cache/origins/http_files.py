"""Files at `http://` and `https://` URLs: one file, or those that a folder's page links to."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

from hotplate.cache.errors import CacheError, OriginBusy, OriginUnavailable, UnknownUrl
from hotplate.cache.origins.blob_source import ByteSource, OnProgress, ignore
from hotplate.cache.origins.http_client import HttpClient, HttpResponse
from hotplate.cache.origins.locations import Location, Version, changed, hide
from hotplate.cache.origins.whole_body import WholeBody

_PAGE_BYTES = 16 << 20
_FOLDERS = 10_000
"""More folders are no model but a part of the web."""

_FILES = 100_000
_ASKED_AT_ONCE = 16
_PACKED = (".gz", ".tgz", ".br", ".zst")
"""Files that some servers call encoded, although their bytes are what the name says."""

_BUSY = (429, 500, 502, 503, 504)


class HttpFiles:
    """Files of web servers."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def find(self, url: str) -> Location:
        one = self._look(url, or_folder=True)
        if isinstance(one, Version):
            return Location(url, (one,))
        found = sorted(self._walk(one))
        if not found:
            raise UnknownUrl(f"{hide(url)} is a page that links no file below it; check the URL")
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
            versions = list(pool.map(self._look, found))
        return Location(url, tuple(one for one in versions if isinstance(one, Version)))

    def source(self, version: Version) -> ByteSource:
        return HttpSource(self._client, version, lambda: version.url)

    def _look(self, url: str, or_folder: bool = False) -> Version | str:
        """The file at a URL; or the URL of the folder, if it is one.

        `or_folder`: also try the name with a slash, by which alone some servers know a folder.
        """
        with self._client.ask("HEAD", url) as response:
            status = response.status
            if status == 200:
                if urlsplit(response.url).path.endswith("/"):
                    return response.url
                _check_plain(response, url)
                if response.length is not None:
                    return Version(url, response.length, tag_of(response.headers))
        if status in (404, 410):
            if or_folder and not url.endswith("/"):
                with contextlib.suppress(CacheError):
                    folder = self._look(f"{url}/")
                    if isinstance(folder, str):
                        return folder
            raise refusal(url, status)
        return self._try(url)

    def _try(self, url: str) -> Version | str:
        """The same where the response to HEAD is of no use."""
        with self._client.ask("GET", url, {"Range": "bytes=0-0"}) as response:
            tag = tag_of(response.headers)
            span = _span(response.headers)
            _check_plain(response, url)
            if response.status == 206 and span is not None and span[2] is not None:
                return Version(url, span[2], tag)
            if response.status == 416:
                return Version(url, 0, tag)
            if response.status != 200:
                raise refusal(url, response.status)
            if urlsplit(response.url).path.endswith("/"):
                return response.url
            return Version(
                url, response.skip() if response.length is None else response.length, tag
            )

    def _walk(self, folder: str) -> Iterator[str]:
        """URLs of all files below a folder's page, which links to files and folders."""
        folders, seen, files = [folder], {folder}, 0
        for at in folders:
            with self._client.ask("GET", at) as response:
                if response.status != 200:
                    raise refusal(at, response.status)
                page = response.read_all(_PAGE_BYTES).decode(errors="replace")
            for link in _links(page, at):
                if not link.endswith("/"):
                    files += 1
                    yield link
                elif link not in seen:
                    seen.add(link)
                    folders.append(link)
                if len(folders) > _FOLDERS or files > _FILES:
                    raise UnknownUrl(
                        f"{hide(folder)} has more than {_FOLDERS} folders or {_FILES} files"
                    )


class HttpSource:
    """One version of a file, whose `address` may be another one each time."""

    def __init__(
        self,
        client: HttpClient,
        version: Version,
        address: Callable[[], str],
        headers: Mapping[str, str] | None = None,
        tagged: bool = True,
    ) -> None:
        """`tagged`: whether the server that gives the bytes gives the version's tag too."""
        self._client = client
        self._version = version
        self._address = address
        self._headers = dict(headers or {})
        self._conditions = _conditions(version.tag) if tagged else {}
        self._tagged = tagged and bool(version.tag)
        self._target: tuple[str, bool] | None = None
        self._whole: WholeBody | None = None

    def read_into(self, offset: int, view: memoryview, on_progress: OnProgress = ignore) -> None:
        whole = self._whole
        if whole is None and self._read_range(offset, view, on_progress):
            return
        if whole is None:
            whole = self._whole = self._whole or WholeBody(self._stream, self._version.size_bytes)
        whole.read_into(offset, view, on_progress)

    def _read_range(self, offset: int, view: memoryview, on_progress: OnProgress) -> bool:
        """Whether the server gave the range, or a whole file of no more than these bytes."""
        last = offset + len(view) - 1
        span = {"Range": f"bytes={offset}-{last}"}
        with self._ask(span | self._conditions) as response:
            if response.status == 206:
                self._check_span(response, offset, last)
            elif response.status == 200:
                self._check_length(response)
                if len(view) < self._version.size_bytes:
                    return False
            else:
                raise self._failure(response.status)
            got = response.read_into(view, on_progress)
        if got < len(view):
            error = OriginUnavailable(
                f"{self._version.name} gave {got} of {len(view)} bytes at {offset}; is it whole?"
            )
            error.body_bytes = got
            raise error
        return True

    @contextlib.contextmanager
    def _stream(self) -> Iterator[HttpResponse]:
        conditions = {name: one for name, one in self._conditions.items() if name != "If-Range"}
        with self._ask(conditions) as response:
            if response.status != 200:
                raise self._failure(response.status)
            self._check_length(response)
            yield response

    @contextlib.contextmanager
    def _ask(self, headers: Mapping[str, str]) -> Iterator[HttpResponse]:
        with self._answer(headers) as response:
            if response.status in (200, 206) and self._tagged:
                tag = tag_of(response.headers)
                if tag and tag != self._version.tag:
                    raise changed(self._version)
            yield response

    @contextlib.contextmanager
    def _answer(self, headers: Mapping[str, str]) -> Iterator[HttpResponse]:
        """The response from the address of the last redirect or signature, as long as that is
        valid."""
        if self._target is not None:
            target, public = self._target
            with self._client.ask("GET", target, headers, public=public) as response:
                if response.status not in (401, 403, 404, 410):
                    yield response
                    return
            self._target = None  # a signed address has expired
        address = self._address()
        with self._client.ask("GET", address, self._headers | dict(headers)) as response:
            if response.status in (200, 206) and _host(response.url) != _host(self._version.url):
                self._target = response.url, response.public
            yield response

    def _check_span(self, response: HttpResponse, offset: int, last: int) -> None:
        span = _span(response.headers)
        if span is not None and span[2] not in (None, self._version.size_bytes):
            raise changed(self._version)
        if span is None or span[:2] != (offset, last):
            given = response.headers.get("content-range", "none")
            raise OriginUnavailable(
                f"{self._version.name} was asked for bytes {offset}-{last} and answered {given!r}"
            )

    def _check_length(self, response: HttpResponse) -> None:
        if response.length not in (None, self._version.size_bytes):
            raise changed(self._version)

    def _failure(self, status: int) -> CacheError:
        return (
            changed(self._version) if status in (412, 416) else refusal(self._version.name, status)
        )


def tag_of(headers: Mapping[str, str]) -> str:
    """The response's ETag or time of modification, which change with the content; "" without
    one."""
    return headers.get("etag") or headers.get("last-modified", "")


def _conditions(tag: str) -> dict[str, str]:
    """Headers that make a server respond for that version only. Weak tags cannot be used for
    ranges."""
    if tag.startswith('"'):
        return {"If-Match": tag, "If-Range": tag}
    if tag and not tag.startswith("W/"):
        return {"If-Unmodified-Since": tag, "If-Range": tag}
    return {}


def _span(headers: Mapping[str, str]) -> tuple[int, int, int | None] | None:
    """First byte, last byte and length of the whole, from `Content-Range`."""
    found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", headers.get("content-range", ""))
    if found is None:
        return None
    return int(found[1]), int(found[2]), None if found[3] == "*" else int(found[3])


def _host(url: str) -> str:
    """The host that credentials may be sent to."""
    return urlsplit(url).netloc.rpartition("@")[2]


def refusal(url: str, status: int) -> CacheError:
    """The error for a status other than success."""
    if status in (404, 410):
        return UnknownUrl(f"there is nothing at {hide(url)} (status {status}); check the URL")
    if status in (401, 403):
        return OriginUnavailable(
            f"{hide(url)} refuses (status {status}); check the agent's credentials for it"
        )
    kind = OriginBusy if status in _BUSY else OriginUnavailable
    return kind(f"{hide(url)} answered with status {status}; try again later")


def _check_plain(response: HttpResponse, url: str) -> None:
    """Raises UnknownUrl for bytes that are not the file's own: an encoding was not asked for."""
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding != "identity" and not urlsplit(url).path.endswith(_PACKED):
        raise UnknownUrl(
            f"{hide(url)} comes encoded ({encoding[:20]!r}), which nobody asked for; have its "
            "server send the file as it is"
        )


def _links(page: str, folder: str) -> Iterable[str]:
    """URLs below the folder that its page links to, without links that only sort the page."""
    parser = _Links()
    parser.feed(page)
    found = dict.fromkeys(urldefrag(urljoin(folder, link)).url for link in parser.links)
    return [
        link for link in found if link.startswith(folder) and "?" not in link and link != folder
    ]


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
