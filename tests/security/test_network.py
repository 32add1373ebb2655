"""What anybody who reaches a port of this machine's loopback gets there."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from tests.security.evil import attack
from tests.security.grounds import Grounds, changed, service
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.services.bentos import IMAGE
from tests.support.services.calling import call

CHAIN = (
    IMAGE
    + """

@bentoml.service(image=image)
class Inner:
    @bentoml.api
    def hi(self, name: str) -> str:
        return f"{name}, {os.environ.get('HACKED', 'unharmed')}"


@bentoml.service(image=image)
class Chain:
    inner = bentoml.depends(Inner)

    @bentoml.api
    async def ask(self, name: str) -> str:
        return await self.inner.to_async.hi(name=name)

    @bentoml.api
    def url(self) -> str:
        return type(self).inner.url
"""
)
PAGE = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
FROM_A_REPLICA = """
import urllib.error, urllib.request
request = urllib.request.Request({url!r}, {body!r}, {fields!r})
try:
    answer = urllib.request.urlopen(request).status
except urllib.error.HTTPError as error:
    answer = error.code
"""


class Harm:
    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("import os; os.environ['HACKED'] = 'hacked'",)


PICKLE = {"Content-Type": "application/vnd.bentoml+pickle"}
FORM = {"Content-Type": "multipart/form-data; boundary=W"}
IN_A_FORM = (
    b'--W\r\nContent-Disposition: form-data; name="name"; filename="f"\r\n'
    b"Content-Type: application/vnd.bentoml+pickle\r\n\r\n"
    + pickle.dumps(Harm())
    + b"\r\n--W--\r\n"
)


@asynccontextmanager
async def chain(field: Grounds, bento: Bento) -> AsyncIterator[tuple[str, str]]:
    """The URL of a deployment of two services, and the port of the inner one's, as a URL."""
    services = [
        {**bento.manifest["services"][0], "name": name, "class_name": name, "dependencies": needs}
        for name, needs in (("Chain", [{"service": "Inner"}]), ("Inner", []))
    ]
    about = {"services": services, "entry_service": "Chain", "service": "service:Chain"}
    bento = bento.changed("chain", {"src/service.py": CHAIN}, **about)
    settings = {name: service() for name in ("Chain", "Inner")}
    async with (
        RoughClient(field.platform) as rough,
        rough.deployed("chain", await rough.push(bento), **settings) as url,
    ):
        assert await call(f"{url}/ask", name="ann") == "ann, unharmed"
        inner = await call(f"{url}/url")
        yield url, f"http://{inner.rpartition('@')[2]}"


async def status_of(url: str, body: bytes, fields: dict[str, str]) -> int:
    async with aiohttp.request("POST", url, data=body, headers=fields) as answer:
        return answer.status


class TestAServiceThatOthersOfItsBentoCall:
    async def test_answers_nobody_else(self, field: Grounds, any_bento: Bento) -> None:
        async with chain(field, any_bento) as (url, inner):
            body = pickle.dumps({"name": Harm()})
            assert await status_of(f"{inner}/hi", body, PICKLE) == 401
            assert await status_of(f"{inner}/hi", IN_A_FORM, FORM) == 401
            assert await status_of(f"{inner}/hi", IN_A_FORM, FORM | PAGE) == 403
            code = FROM_A_REPLICA.format(url=f"{inner}/hi", body=body, fields=PICKLE)
            assert await attack(field.evil, code) == 401
            assert await call(f"{url}/ask", name="ann") == "ann, unharmed"

    async def test_runs_anybodys_code_where_nobody_is_asked(
        self, field: Grounds, any_bento: Bento
    ) -> None:
        async with chain(field, any_bento) as (url, inner):
            with field.without("secret"):
                await status_of(f"{inner}/hi", pickle.dumps({"name": Harm()}), PICKLE)
            assert await call(f"{url}/ask", name="ann") == "ann, hacked"


TELLER = (
    IMAGE
    + """

@bentoml.service(image=image)
class Teller:
    @bentoml.api
    def word(self) -> str:
        return os.environ["WORD"]
"""
)
WHO_TELLS = """
import urllib.request

def tells(port):
    request = urllib.request.Request(
        f"http://127.0.0.1:{{port}}/word", b"{{}}", {{"Content-Type": "application/json"}}
    )
    try:
        return urllib.request.urlopen(request, timeout=1).read().decode() == {word!r}
    except OSError:
        return False

with open("/proc/net/tcp") as file:
    rows = [line.split() for line in file.readlines()[1:]]
listening = {{int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A"}}
answer = sorted(port for port in listening if tells(port))
"""


async def ports_that_tell(field: Grounds, bento: Bento) -> tuple[int, list[int]]:
    """The port of a deployment, and all of loopback by which a replica gets its answer."""
    word = uuid.uuid4().hex
    async with RoughClient(field.platform) as rough:
        tag = await rough.push(changed(bento, "teller", TELLER))
        async with rough.deployed("teller", tag, Teller=service(WORD=word)) as url:
            found = await attack(field.evil, WHO_TELLS.format(word=word))
            return int(url.rpartition(":")[2]), found


class TestAReplica:
    async def test_is_reached_through_the_gateway_only(
        self, field: Grounds, any_bento: Bento
    ) -> None:
        port, found = await ports_that_tell(field, any_bento)
        assert found == [port]

    async def test_is_reached_past_it_where_it_has_a_port(
        self, field: Grounds, any_bento: Bento
    ) -> None:
        with field.without("sockets"):
            port, found = await ports_that_tell(field, any_bento)
        assert port in found
        assert len(found) == 2
