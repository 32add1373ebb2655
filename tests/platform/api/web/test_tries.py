from __future__ import annotations

import pytest

from hotplate.platform.api.web.tries import ADDRESSES, MOST, WrongTries
from tests.support.control_plane.cloud import Cloud


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
