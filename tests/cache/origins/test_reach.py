"""Where what the internet answers may lead."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from hotplate.cache.errors import CacheError, OriginUnavailable, UnknownUrl
from hotplate.cache.origins.http_client import HttpClient
from hotplate.cache.origins.http_files import HttpFiles
from hotplate.cache.origins.reach import is_public
from tests.support.cache.web import WebServer

OUTSIDE = "127.0.0.2"
"""In these tests, an address of the internet."""


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_the_internets_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
        ),
        *(
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.0.1",
            "198.18.0.1",
        ),
        *("::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "fd00:ec2::254", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::"),
        *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "64:ff9b:1::7f00:1", "::127.0.0.1"),
    ],
)
def test_a_machines_and_its_networks_addresses_are_not(address: str) -> None:
    assert not is_public(address)


@pytest.fixture
def inside() -> Iterator[WebServer]:
    with WebServer({"/secret": b"of this machine", "/a/b": b"more"}) as server:
        yield server


@pytest.fixture
def outside() -> Iterator[WebServer]:
    with WebServer({"/file": b"for everybody"}, host=OUTSIDE) as server:
        yield server


@pytest.fixture
def client() -> Iterator[HttpClient]:
    client = HttpClient(lambda address: address == OUTSIDE)
    yield client
    client.close()


def read(client: HttpClient, url: str) -> bytes:
    files = HttpFiles(client)
    (version,) = files.find(url).versions
    view = bytearray(version.size_bytes)
    files.source(version).read_into(0, memoryview(view))
    return bytes(view)


def test_the_internet_leads_to_nothing_of_this_machine(
    client: HttpClient, inside: WebServer, outside: WebServer
) -> None:
    port = inside.url.rpartition(":")[2]
    for target in (inside.url, f"http://localhost:{port}", f"http://[::ffff:127.0.0.1]:{port}"):
        outside.ways.moved["/file"] = f"{target}/secret"
        with pytest.raises(UnknownUrl, match="is an address of this machine or its network"):
            read(client, f"{outside.url}/file")
    assert inside.requests == []


def test_nor_over_a_connection_that_somebody_else_had_open(
    client: HttpClient, inside: WebServer, outside: WebServer
) -> None:
    assert read(client, f"{inside.url}/secret") == b"of this machine"  # which leaves it idle
    before = len(inside.requests)
    outside.ways.moved["/file"] = f"{inside.url}/secret"
    with pytest.raises(UnknownUrl, match="is an address of this machine or its network"):
        read(client, f"{outside.url}/file")
    assert len(inside.requests) == before


def test_nor_where_it_led_before_when_that_name_has_moved(outside: WebServer) -> None:
    public = {OUTSIDE}
    client = HttpClient(public.__contains__)
    with WebServer({"/far": b"for everybody"}, host=OUTSIDE) as far:
        outside.ways.moved["/file"] = f"{far.url}/far"
        far.ways.headers["/far"] = {"Connection": "close"}
        files = HttpFiles(client)
        (version,) = files.find(f"{outside.url}/file").versions
        source = files.source(version)
        view = memoryview(bytearray(version.size_bytes))
        source.read_into(0, view)
        public.clear()
        with pytest.raises(UnknownUrl, match="is an address of this machine or its network"):
            source.read_into(0, view)
    client.close()


def test_what_lies_in_this_network_may_lead_anywhere(
    client: HttpClient, inside: WebServer, outside: WebServer
) -> None:
    inside.ways.moved["/here"] = f"{inside.url.replace('127.0.0.1', 'localhost')}/secret"
    assert read(client, f"{inside.url}/here") == b"of this machine"
    inside.ways.moved["/there"] = f"{outside.url}/file"
    assert read(client, f"{inside.url}/there") == b"for everybody"


def test_the_internet_leads_to_the_internet(client: HttpClient, outside: WebServer) -> None:
    with WebServer({"/far": b"for everybody"}, host=OUTSIDE) as far:
        outside.ways.moved["/file"] = f"{far.url}/far"
        assert read(client, f"{outside.url}/file") == b"for everybody"
        outside.ways.moved["/file"] = "file:///etc/passwd"
        with pytest.raises(UnknownUrl, match="is no address of a file"):
            read(client, f"{outside.url}/file")


@contextmanager
def answering(answer: bytes, then: bytes = b"") -> Iterator[str]:
    """A server that answers once so, and goes on with `then` for as long as anybody reads."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(answer)
            while then:
                connection.sendall(then)
            connection.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/x"


@pytest.mark.parametrize(
    ("answer", "then", "reason"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "that it will answer"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            b"A: b\r\n",
            "trailers",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n", b"", "with a body of"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536, "answered more than"),
    ],
)
def test_an_origin_whose_response_never_ends_is_given_up(
    client: HttpClient, answer: bytes, then: bytes, reason: str
) -> None:
    with (
        answering(answer, then) as url,
        pytest.raises(OriginUnavailable, match=reason),
        client.ask("GET", url) as got,
    ):
        got.read_all(1 << 20)


def test_the_body_of_a_redirect_is_not_read_for_ever(
    client: HttpClient, outside: WebServer
) -> None:
    head = f"HTTP/1.1 302 Found\r\nLocation: {outside.url}/file\r\n\r\n".encode()
    with answering(head, b"x" * 65536) as url, client.ask("GET", url) as got:
        assert got.read_all(1 << 20) == b"for everybody"


def test_a_page_of_a_million_folders_is_refused_at_once(client: HttpClient) -> None:
    page = "".join(f'<a href="{number}/">x</a>' for number in range(200_000))
    with (
        WebServer({"/m/": page.encode()}) as web,
        pytest.raises(CacheError, match="has more than 10000"),
    ):
        HttpFiles(client).find(f"{web.url}/m/")
