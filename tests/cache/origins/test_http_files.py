"""Files of web servers, read by our own client from a real server."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hotplate.cache.errors import CacheError, OriginUnavailable, UnknownUrl, VersionChanged
from hotplate.cache.origins.http_client import HttpClient
from hotplate.cache.origins.http_files import HttpFiles
from hotplate.cache.origins.locations import Version
from tests.support.cache.fakes import random_bytes
from tests.support.cache.web import WebServer
from tests.support.certificates import issue
from tests.support.patience import PATIENCE_S

CONTENT = random_bytes(1_000_003, 31)
FILES = {"/m/model.safetensors": CONTENT, "/m/sub/config.json": b"{}", "/m/empty": b""}


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer(FILES) as server:
        yield server


@pytest.fixture
def files() -> Iterator[HttpFiles]:
    client = HttpClient()
    yield HttpFiles(client)
    client.close()


def only(files: HttpFiles, url: str) -> Version:
    (version,) = files.find(url).versions
    return version


def read(files: HttpFiles, version: Version, offset: int, length: int) -> bytes:
    view = bytearray(length)
    files.source(version).read_into(offset, memoryview(view))
    return bytes(view)


def test_a_file_is_known_by_its_length_and_tag(files: HttpFiles, web: WebServer) -> None:
    version = only(files, f"{web.url}/m/model.safetensors")
    assert version == Version(f"{web.url}/m/model.safetensors", len(CONTENT), '"0"')
    assert web.of("GET") == [] and len(web.of("HEAD")) == 1


def test_a_folder_is_all_files_below_its_page(files: HttpFiles, web: WebServer) -> None:
    location = files.find(f"{web.url}/m")
    sizes = {one.url.removeprefix(web.url): one.size_bytes for one in location.versions}
    assert sizes == {path: len(content) for path, content in FILES.items()}
    assert files.find(f"{web.url}/").versions == location.versions


def test_ranges_come_over_connections_that_are_kept(files: HttpFiles, web: WebServer) -> None:
    version = only(files, f"{web.url}/m/model.safetensors")
    source = files.source(version)

    def part(offset: int) -> bytes:
        view = bytearray(min(100_000, len(CONTENT) - offset))
        source.read_into(offset, memoryview(view))
        return bytes(view)

    with ThreadPoolExecutor(4) as pool:
        assert b"".join(pool.map(part, range(0, len(CONTENT), 100_000))) == CONTENT
    assert web.sent_bytes == len(CONTENT)
    assert web.connections <= 5 < len(web.requests)


@pytest.mark.parametrize("lengths", [True, False])
def test_a_server_without_ranges_is_read_once_from_front_to_back(
    files: HttpFiles, web: WebServer, lengths: bool
) -> None:
    web.ways.ranges, web.ways.lengths = False, lengths
    version = only(files, f"{web.url}/m/model.safetensors")
    assert version.size_bytes == len(CONTENT)
    source = files.source(version)
    offsets = list(range(0, len(CONTENT), 100_000))
    found: dict[int, bytes] = {}

    def part() -> None:
        while offsets:
            offset = offsets.pop(0)
            view = bytearray(min(100_000, len(CONTENT) - offset))
            came: list[int] = []
            source.read_into(offset, memoryview(view), came.append)
            assert came and came == sorted(came) and came[-1] >= len(view)
            found[offset] = bytes(view)

    threads = [threading.Thread(target=part) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert b"".join(found[offset] for offset in sorted(found)) == CONTENT
    assert len(web.of("GET")) <= 5  # each thread may have tried a range, and one stream was begun
    # what has passed comes again
    assert read(files, version, 5, 10) == CONTENT[5:15]
    view = bytearray(10)
    source.read_into(300_000, memoryview(view))
    assert view == CONTENT[300_000:300_010]


def test_a_server_that_knows_no_head_is_asked_for_a_byte(files: HttpFiles, web: WebServer) -> None:
    web.ways.head = False
    version = only(files, f"{web.url}/m/model.safetensors")
    assert version == Version(f"{web.url}/m/model.safetensors", len(CONTENT), '"0"')
    assert only(files, f"{web.url}/m/empty").size_bytes == 0


@pytest.mark.parametrize("tags", [True, False])
def test_a_change_during_a_fetch_is_an_error(files: HttpFiles, web: WebServer, tags: bool) -> None:
    web.ways.tags = tags
    version = only(files, f"{web.url}/m/model.safetensors")
    assert read(files, version, 0, 10) == CONTENT[:10]
    web.change("/m/model.safetensors", CONTENT + b"longer")
    with pytest.raises(VersionChanged, match="was changed while it was fetched"):
        read(files, version, 10, 10)
    web.change("/m/model.safetensors", b"short")
    with pytest.raises(VersionChanged, match="was changed while it was fetched"):
        read(files, version, 10, 10)


def test_a_change_of_the_tag_alone_is_an_error(files: HttpFiles, web: WebServer) -> None:
    version = only(files, f"{web.url}/m/model.safetensors")
    web.change("/m/model.safetensors", bytes(len(CONTENT)))
    with pytest.raises(VersionChanged):
        read(files, version, 0, 10)
    web.ways.ranges = False
    with pytest.raises(VersionChanged):
        read(files, version, 0, 10)


def test_a_server_that_minds_no_condition_or_range_gives_no_wrong_byte(
    files: HttpFiles, web: WebServer
) -> None:
    path = "/m/model.safetensors"
    version = only(files, web.url + path)
    web.ways.headers[path] = {"ETag": '"other"'}
    with pytest.raises(VersionChanged):
        read(files, version, 0, 10)
    web.ways.headers[path] = {"Content-Range": f"bytes 5-14/{len(CONTENT)}"}
    with pytest.raises(
        OriginUnavailable, match=r"was asked for bytes 0-9 and answered 'bytes 5-14"
    ):
        read(files, version, 0, 10)


@pytest.mark.parametrize("lengths", [True, False])
def test_a_stream_of_another_length_is_an_error(
    files: HttpFiles, web: WebServer, lengths: bool
) -> None:
    web.ways.ranges, web.ways.tags, web.ways.lengths = False, False, lengths
    path = "/m/model.safetensors"
    version = only(files, web.url + path)
    web.files[path] = CONTENT[:-1]
    with pytest.raises(VersionChanged if lengths else OriginUnavailable):
        read(files, version, len(CONTENT) - 10, 10)
    if lengths:
        web.files[path] = CONTENT + b"longer"
        with pytest.raises(VersionChanged):
            read(files, version, 0, 10)


def test_a_body_that_ends_early_is_an_error_that_says_what_was_read(
    files: HttpFiles, web: WebServer
) -> None:
    version = only(files, f"{web.url}/m/model.safetensors")
    web.ways.closes_after = 40
    with pytest.raises(OriginUnavailable, match="closed the connection 60 bytes too early") as told:
        read(files, version, 0, 100)
    assert told.value.body_bytes == 40
    assert read(files, version, 0, 100) == CONTENT[:100]


def test_a_thread_that_waits_for_a_server_gets_an_error_when_the_agent_stops() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = HttpClient()
        with ThreadPoolExecutor(1) as pool:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
            waiting = pool.submit(HttpFiles(client).find, url)
            connection, _ = silent.accept()
            assert connection.recv(100).startswith(b"HEAD /x ")
            client.close()
            with pytest.raises(OriginUnavailable, match="does not answer"):
                waiting.result(timeout=PATIENCE_S)
            connection.close()
        with pytest.raises(OriginUnavailable, match="the agent is stopping"):
            HttpFiles(client).find(url)


def test_https_is_read_where_the_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = issue(tmp_path, "127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with WebServer(FILES, tls=tls) as web:
        url = f"{web.url}/m/model.safetensors"
        stranger = HttpClient()
        with pytest.raises(OriginUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            HttpFiles(stranger).find(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        client = HttpClient()
        files = HttpFiles(client)
        assert read(files, only(files, url), 100, 900_000) == CONTENT[100:900_100]
        stranger.close()
        client.close()


def test_redirects_are_followed_and_credentials_stay_behind(
    files: HttpFiles, web: WebServer
) -> None:
    with WebServer({}) as front:
        target = f"{web.url}/m/model.safetensors"
        front.ways.moved = {"/here": "/there", "/there": target, "/round": "/round"}
        front.ways.moved["/odd"] = "ftp://127.0.0.1/x"
        version = only(files, f"http://user:pass@{front.url.removeprefix('http://')}/here")
        source = files.source(version)
        view = bytearray(20)
        for offset in (7, 70, 700):
            source.read_into(offset, memoryview(view))
            assert view == CONTENT[offset : offset + 20]
        assert front.of("GET") == ["/here", "/there"]  # where they lead is known from then on
        web.files["/signed"], web.tags["/signed"] = CONTENT, '"0"'
        del web.files["/m/model.safetensors"]
        front.ways.moved["/there"] = f"{web.url}/signed"
        source.read_into(9, memoryview(view))
        assert view == CONTENT[9:29]
        with pytest.raises(UnknownUrl, match="redirects more than 10 times"):
            files.find(f"{front.url}/round")
        with pytest.raises(UnknownUrl, match="no address of a file"):
            files.find(f"{front.url}/odd")
    assert "pass" not in version.name


@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        (404, UnknownUrl, "there is nothing at"),
        (403, OriginUnavailable, "check the agent's credentials"),
        (500, OriginUnavailable, "answered with status 500"),
    ],
)
def test_a_refusal_is_one_sentence(
    files: HttpFiles, web: WebServer, status: int, kind: type[CacheError], sentence: str
) -> None:
    version = only(files, f"{web.url}/m/model.safetensors")
    web.ways.refuses = status
    with pytest.raises(kind, match=sentence):
        files.find(f"{web.url}/m/model.safetensors")
    with pytest.raises(kind, match=sentence):
        read(files, version, 0, 10)


def test_a_file_that_comes_encoded_is_refused_unless_its_name_says_so(
    files: HttpFiles, web: WebServer
) -> None:
    for path in ("/plain.bin", "/a.tar.gz"):
        web.files[path], web.tags[path] = CONTENT, '"packed"'
        web.ways.headers[path] = {"Content-Encoding": "gzip"}
    for web.ways.head in (True, False):
        with pytest.raises(UnknownUrl, match=r"plain.bin comes encoded \('gzip'\)"):
            files.find(f"{web.url}/plain.bin")
        assert only(files, f"{web.url}/a.tar.gz").size_bytes == len(CONTENT)


@pytest.mark.parametrize("length", ["-5", "²"])
def test_a_length_that_is_no_number_is_refused(
    files: HttpFiles, web: WebServer, length: str
) -> None:
    web.files["/odd"], web.tags["/odd"], web.ways.lengths = b"", '"odd"', False
    web.ways.headers["/odd"] = {"Content-Length": length}
    with pytest.raises(OriginUnavailable, match=f"answered with a body of '{length}' bytes"):
        files.find(f"{web.url}/odd")


def test_a_file_larger_than_any_is_refused_before_anybody_keeps_account_of_it() -> None:
    with pytest.raises(UnknownUrl, match="said to have 1125899906842624 bytes; a file may have"):
        Version("http://web/odd", 1 << 50, "")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/x", "http://[::1]:9/x", "http://nowhere.invalid/x"]
)
def test_a_server_that_is_not_there_is_unavailable(files: HttpFiles, url: str) -> None:
    with pytest.raises(OriginUnavailable, match="does not answer"):
        files.find(url)
