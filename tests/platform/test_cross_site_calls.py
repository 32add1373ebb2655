"""What a browser was led to send to the API: for another site's page, or under another name."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.control_plane.cloud import Cloud

PATHS = ["/", "/healthz", "/api/v1/auth/current", "/deployments/echo", "/nothing"]
PAGES = [
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:7100", "Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
]
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
async def test_another_origins_page_gets_nothing_even_with_the_token(
    cloud: Cloud, path: str, page: dict[str, str], method: str
) -> None:
    async with cloud.http.request(method, path, headers=page) as answer:
        assert answer.status == 403
        assert (await answer.json())["error"]["code"] == "cross_site"


async def test_the_own_pages_and_links_from_elsewhere_are_served(cloud: Cloud) -> None:
    own = f"http://127.0.0.1:{cloud.server.port}"
    for headers in ({"Origin": own}, {"Sec-Fetch-Site": "same-origin"}, LINK, {}):
        async with cloud.http.get("/api/v1/auth/current", headers=headers) as answer:
            assert answer.status == 200, headers


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1@evil.example", "10.1.2.3", ""]
)
async def test_a_foreign_host_is_misdirected(cloud: Cloud, path: str, host: str) -> None:
    async with cloud.http.get(path, headers={"Host": host}) as answer:
        assert answer.status == 421
        error = (await answer.json())["error"]
        assert error["code"] == "misdirected_request"
        assert error["message"].endswith("add this one to its setting 'hosts'.")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n", b"421"),
        (b"GET http://localhost@evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n", b"421"),
        (b"GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n", b"421"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", b"4"),
        (b"GET /healthz HTTP/1.1\r\n", b"4"),
        (b"GET /healthz HTTP/1.0\r\n", b"200"),
        (b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n", b"200"),
    ],
)
async def test_every_spelling_of_whom_it_is_for_counts(
    cloud: Cloud, head: bytes, status: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", cloud.server.port)
    writer.write(head + b"Connection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.split()[1].startswith(status), answer
