from __future__ import annotations

import pytest
from aiohttp.test_utils import TestServer
from multidict import CIMultiDict

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.api.web.tries import ADDRESSES, MOST, WrongTries
from hotplate.platform.application import make_app
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController


def test_ten_in_a_minute_are_answered_and_the_next_when_the_first_is_a_minute_old() -> None:
    tries = WrongTries()
    assert [tries.wrong("a", float(at)) for at in range(MOST)] == [None] * MOST
    assert tries.wrong("a", 10.0) == 50
    assert tries.wrong("b", 10.0) is None, "another address is not concerned"
    assert tries.wrong("a", 59.5) == 1
    assert tries.wrong("a", 60.0) is None
    assert tries.wrong("a", 60.1) == 1


def test_addresses_are_remembered_up_to_a_number() -> None:
    tries = WrongTries(most=1)
    for number in range(ADDRESSES):
        tries.wrong(str(number), 0.0)
    assert tries.wrong("0", 1.0) == 59
    tries.wrong("one more", 1.0)
    assert tries.wrong("1", 1.0) is None, "the one that was wrong longest ago is forgotten"


async def test_only_wrong_ones_are_refused(cloud: Cloud) -> None:
    async def status(token: str) -> tuple[int, str | None]:
        headers = {"X-YATAI-API-TOKEN": token}
        async with cloud.http.get("/api/v1/auth/current", headers=headers) as answer:
            return answer.status, answer.headers.get("Retry-After")

    assert [await status("wrong") for _ in range(MOST)] == [(401, None)] * MOST
    refused, wait_s = await status("wrong")
    assert refused == 429
    assert wait_s is not None
    assert 1 <= int(wait_s) <= 60
    assert await status(cloud.token) == (200, None)


@pytest.mark.parametrize("path", ["/api/v1/auth/token?code=wrong", "/login"])
async def test_codes_and_links_count_too(cloud: Cloud, path: str) -> None:
    cloud.http.headers.clear()
    method, form = ("POST", {"link": "wrong"}) if path == "/login" else ("GET", None)
    seen = []
    for _ in range(MOST + 1):
        async with cloud.http.request(method, path, data=form) as answer:
            seen.append(answer.status)
    assert seen == [401] * MOST + [429]


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::2%eth1"),
    ],
)
def test_who_has_many_addresses_counts_once(address: str, same: str) -> None:
    tries = WrongTries(most=1)
    assert tries.wrong(address, 0.0) is None
    assert tries.wrong(same, 1.0) == 59
    assert tries.wrong("2001:db8:1:3::1", 1.0) is None
    assert tries.wrong("192.0.2.2", 1.0) is None


@pytest.mark.parametrize(("trusted", "statuses"), [((), {401, 429}), (("127.0.0.1",), {401})])
async def test_an_address_that_a_caller_makes_up_is_believed_of_no_one_but_proxies(
    store: Store,
    blobs: BlobStore,
    controller: FakeController,
    trusted: tuple[str, ...],
    statuses: set[int],
) -> None:
    app = make_app(store, blobs, controller, ApiSettings(trusted_proxies=trusted))
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        found = set()
        for number in range(MOST + 2):
            headers = {"X-YATAI-API-TOKEN": "wrong", "X-Forwarded-For": f"198.51.100.{number}"}
            async with cloud.http.get("/api/v1/auth/current", headers=headers) as answer:
                found.add(answer.status)
        assert found == statuses


async def test_a_line_that_a_proxy_adds_counts_and_not_the_one_above_it(
    store: Store, blobs: BlobStore, controller: FakeController
) -> None:
    app = make_app(store, blobs, controller, ApiSettings(trusted_proxies=("127.0.0.1",)))
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        found = set()
        for number in range(MOST + 2):
            headers = CIMultiDict({"X-YATAI-API-TOKEN": "wrong"})
            headers.add("X-Forwarded-For", f"198.51.100.{number}")
            headers.add("X-Forwarded-For", "203.0.113.9")
            async with cloud.http.get("/api/v1/auth/current", headers=headers) as answer:
                found.add(answer.status)
        assert found == {401, 429}
