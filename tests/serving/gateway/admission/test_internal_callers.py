"""Internal routes: only services of the same revision are answered, and by what they show."""

from __future__ import annotations

import hashlib
from base64 import b64encode

import pytest

from tests.support.gateway.kitchen import Kitchen

SECRET = "a" * 64
DIGEST = hashlib.sha256(SECRET.encode()).hexdigest()
PICKLE = {"method": "POST", "body": b"x", "content_type": "application/vnd.bentoml+pickle"}


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
async def inner(kitchen: Kitchen) -> Kitchen:
    await kitchen.wake()
    await kitchen.serve(internal=True, secret_digest=DIGEST)
    return kitchen


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"Hotplate_Secret": ""},
        {"Hotplate_Secret": "b" * 64},
        {"Hotplate_Secret": DIGEST},
        {"Authorization": f"Bearer {SECRET}"},
        {"Authorization": basic("hotplate", "")},
        {"Authorization": basic("hotplate", "b" * 64)},
        {"Authorization": basic("other", SECRET)},
        {"Authorization": "Basic ?"},
    ],
)
async def test_a_stranger_gets_401_and_reaches_no_replica(
    inner: Kitchen, fields: dict[str, str]
) -> None:
    for target in ("/echo", "/readyz", "/metrics", "/schema.json", "/hotplate/running"):
        answer = await inner.ask(target, **PICKLE, **fields)
        assert (answer.status, answer.error["code"]) == (401, "unauthorized")
        assert SECRET not in answer.error["message"]
    assert not inner.backend.requests


async def test_a_route_whose_secret_nobody_has_lets_nobody_in(kitchen: Kitchen) -> None:
    await kitchen.wake()
    await kitchen.serve(internal=True)
    for secret in ("", SECRET):
        assert (await kitchen.ask("/echo", Hotplate_Secret=secret)).status == 401


async def test_a_sibling_is_answered_its_pickles_too(inner: Kitchen) -> None:
    for fields in ({"Hotplate_Secret": SECRET}, {"Authorization": basic("hotplate", SECRET)}):
        assert (await inner.ask("/echo", **PICKLE, **fields)).body == b"x"
        assert (await inner.ask("/echo", **PICKLE, **fields)).body == b"x"


async def test_the_secret_is_taken_off_and_other_credentials_are_not(inner: Kitchen) -> None:
    await inner.ask("/echo", Hotplate_Secret=SECRET, Authorization="Bearer theirs")
    await inner.ask("/echo", Hotplate_Secret=SECRET, Authorization=basic("me", "mine"))
    await inner.ask("/echo", Authorization=basic("hotplate", SECRET))
    seen = [request.headers for request in inner.backend.requests]
    assert [headers.get("authorization") for headers in seen] == [
        "Bearer theirs",
        basic("me", "mine"),
        None,
    ]
    assert not [headers for headers in seen if "hotplate-secret" in headers]


@pytest.mark.parametrize(
    "fields",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Storage_Access": "none"},
    ],
)
async def test_a_web_page_is_refused_whatever_it_knows(
    inner: Kitchen, fields: dict[str, str]
) -> None:
    answer = await inner.ask("/echo", Hotplate_Secret=SECRET, **fields)
    assert (answer.status, answer.error["code"]) == (403, "page_refused")
    assert not inner.backend.requests


async def test_a_stranger_is_answered_before_a_byte_of_its_body(inner: Kitchen) -> None:
    for expects in (b"", b"Expect: 100-continue\r\n"):
        caller = await inner.caller()
        head = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n" + expects
        caller.send_raw(head + b"\r\n")
        assert (await caller.answer()).status == 401
        assert await caller.ended()


async def test_a_public_route_takes_no_secret_and_hands_none_on(kitchen: Kitchen) -> None:
    await kitchen.wake()
    digest = hashlib.sha256(b"token").hexdigest()
    await kitchen.serve(token_digests=(digest,), secret_digest=DIGEST)
    assert (await kitchen.ask("/echo", Hotplate_Secret=SECRET)).status == 401
    await kitchen.serve(token_digests=None)
    assert (await kitchen.ask("/echo", Hotplate_Secret=SECRET)).status == 200
    assert "hotplate-secret" not in kitchen.backend.requests[0].headers
