"""A platform with a deployment that is asked all the time, for storms that take something away from
it.

Whoever asks is to be answered, or told why not: in JSON with a code and a sentence. When what was
taken is back, everything works again, in the same processes.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from loadtests.harness.inspection import tracebacks
from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import AWAKE, kitchens, service_settings
from tests.support.control_plane.cloud import Refused
from tests.support.end_to_end.census import ROLES
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.patience import until
from tests.support.services.calling import call

PACE_S = 0.1
ANSWER_S = 40.0
BACK_S = 90.0
"""How long after a fault everything may take to work again."""


@dataclass
class Told:
    """What callers of one kind were told."""

    answered: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    """Errors by their code; `no connection` where there was nobody to say anything."""
    untyped: list[str] = field(default_factory=list)
    """Errors without a code and a sentence."""

    def note(self, status: int, body: bytes) -> None:
        if status == 200:
            self.answered += 1
            return
        try:
            error = json.loads(body)["error"]
            code, message = error["code"], error["message"]
            if not message or "Traceback" in message:
                raise ValueError(message)
            self.codes[f"{status} {code}"] += 1
        except (ValueError, KeyError, TypeError):
            self.untyped.append(f"{status} {body[:200]!r}")


@dataclass
class FaultedPlatform:
    """The platform, a client of it, and what was found."""

    platform: Platform
    rough: RoughClient
    tag: str
    verdict: Verdict
    pids: Mapping[str, int]
    """The roles' processes at the beginning."""
    log_sizes: Mapping[str, int]
    turns: int = 0

    @asynccontextmanager
    async def asked(
        self, fault: str, *, silent: bool = False, of_service: Collection[str] = ()
    ) -> AsyncIterator[Mapping[str, Told]]:
        """Callers of the deployment, of one that sleeps, and of the API, until the block ends.

        Everything that they are told must be an answer or a typed error; `silent`: a process may be
        gone or unable to say anything, so that there may be no connection. What the callers named
        `of_service` are told may be the service's own words.
        """
        told = {name: Told() for name in ("deployment", "sleeper", "API", "update")}
        done = asyncio.Event()
        steady, sleeper = [await self.platform.url_of(name) for name in ("steady", "sleeper")]
        page = f"{self.platform.url}/api/v1/hotplate/deployments"
        update = f"{self.platform.url}/api/v2/deployments/turning"
        async with asyncio.TaskGroup() as group:
            for name, method, url in (
                ("deployment", "POST", f"{steady}/cook"),
                ("sleeper", "POST", f"{sleeper}/cook"),
                ("API", "GET", page),
                ("update", "PUT", update),
            ):
                group.create_task(self._ask_on(told[name], method, url, done, silent=silent))
            try:
                yield told
            finally:
                done.set()
        for name, one in told.items():
            shown = {"answered": one.answered, **dict(sorted(one.codes.items()))}
            self.verdict.figures[f"{fault}: {name}"] = shown
            if name in of_service:
                self.verdict.figures[f"{fault}: {name}, of the service"] = len(one.untyped)
            else:
                self.verdict.expect(not one.untyped, f"{fault}: {name} was told {one.untyped[:2]}")

    async def _ask_on(
        self, told: Told, method: str, url: str, done: asyncio.Event, *, silent: bool
    ) -> None:
        """One caller, each time on a connection of its own."""
        headers = {"X-YATAI-API-TOKEN": self.platform.token}
        limit = aiohttp.ClientTimeout(ANSWER_S)
        while not done.is_set():
            body = self.next_settings() if method == "PUT" else {"seconds": 0.01}
            try:
                async with (
                    aiohttp.ClientSession(timeout=limit, headers=headers) as http,
                    http.request(method, url, json=None if method == "GET" else body) as answer,
                ):
                    told.note(answer.status, await answer.read())
            except (aiohttp.ClientError, TimeoutError) as error:
                if silent:
                    told.codes["no connection"] += 1
                else:
                    told.untyped.append(repr(error))
            pause_s = 2.0 if method == "PUT" else PACE_S
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), pause_s)

    def next_settings(self) -> dict[str, object]:
        """Of the next revision of the deployment `turning`."""
        self.turns += 1
        envs = [{"name": "TURN", "value": str(self.turns)}]
        return {"bento": self.tag, "services": {"Kitchen": service_settings()}, "envs": envs}

    async def recovered(self, fault: str, restarted: Sequence[str] = ()) -> None:
        """Waits until a request, a wake from zero and a roll-out work; in the same processes, but
        for those that are named."""
        began = asyncio.get_running_loop().time()
        trouble = ""

        async def works() -> bool:
            nonlocal trouble
            try:
                await self._works()
            except (aiohttp.ClientError, AssertionError, Refused, TimeoutError) as error:
                trouble = repr(error)
                return False
            return True

        try:
            await until(works, BACK_S)
        except TimeoutError:
            self.verdict.expect(False, f"{fault}: {BACK_S:g} s later it does not work: {trouble}")
        lasted_s = asyncio.get_running_loop().time() - began
        self.verdict.figures[f"{fault}: all works again after, s"] = round(lasted_s, 1)
        for role, pid in self.pids.items():
            now = self.platform.pid(role)
            if role not in restarted:
                self.verdict.expect(now == pid, f"{fault}: {role} was process {pid} and is {now}")
        self.pids = {role: self.platform.pid(role) for role in ROLES}
        for log, size in self.log_sizes.items():
            text = (self.platform.data / "logs" / log).read_bytes()[size:].decode(errors="replace")
            for what in tracebacks(text)[:1]:
                self.verdict.broken.append(f"{fault}: {log} has a traceback: {what}")
        self.log_sizes = log_sizes(self.platform)

    async def _works(self) -> None:
        assert await self.platform.healthy(), "no gateway is connected"
        for name in ("steady", "sleeper"):
            async with asyncio.timeout(ANSWER_S):
                await call(f"{await self.platform.url_of(name)}/cook")
        body = self.next_settings()
        await self.rough.call("PUT", "/api/v2/deployments/turning", body)
        await self.rough.settled("turning", "running", "scaled-to-zero")
        page = await self.platform.ask("turning")
        assert page["serving"] == page["revision"], "the roll-out has not ended"


@asynccontextmanager
async def faulted_platform(
    folder: Path, verdict: Verdict, environ: Mapping[str, str] | None = None, database: str = ""
) -> AsyncIterator[FaultedPlatform]:
    """`environ` and `database` are the platform's, as `kitchens` takes them."""
    async with kitchens(folder, environ=environ, database=database) as place:
        await place.deploy("steady", **AWAKE)
        for name in ("sleeper", "turning"):
            await place.deploy(name)
        platform = place.platform
        pids = {role: platform.pid(role) for role in ROLES}
        yield FaultedPlatform(
            platform, place.rough, place.bento.tag, verdict, pids, log_sizes(platform)
        )


def log_sizes(platform: Platform) -> dict[str, int]:
    """The roles' logs as long as they are now."""
    return {log.name: log.stat().st_size for log in (platform.data / "logs").glob("*.log")}
