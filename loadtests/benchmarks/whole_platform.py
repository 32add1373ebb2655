"""What a whole platform adds to a BentoML service that takes 100 ms, beside its replica alone.

`hotplate up`, and a replica that the stock client has deployed. The same clients ask, in turns, the
deployment's address and the socket on which the replica listens. The rate is what two cores can
carry with the clients on them: an API of BentoML's takes a core for three times as many requests
(`api`), an ASGI application in a service of BentoML's takes less, so that it is asked by more
clients (`asgi`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.benchmarks.slot_trials.pairs import project
from loadtests.harness.bounds import BoundedRow, at_most, exactly, verdict
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.installation import deploy, installation
from loadtests.harness.report import column, median
from loadtests.systems.load import Load, closed_loop

WAITS = """class Waits:
    @bentoml.api
    async def wait(self, text: str) -> str:
        await asyncio.sleep(0.1)
        return text
"""
SERVICE = "@bentoml.service"
APPLICATION = """async def application(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(0.1)
    headers = [(b"content-length", b"4")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"done"})


@bentoml.asgi_app(application, path="/application")
"""
ONE_REPLICA = {
    "scaling": {"min_replicas": 1, "max_replicas": 1},
    "config_overrides": {"traffic": {"concurrency": 100}},
}
ROUNDS, SECONDS, WARMUP_S = 5, 10.0, 3.0


@dataclass(frozen=True)
class Row(BoundedRow):
    ours: float | None = column("hotplate")
    alone: float | None = column("replica alone")
    digits: int = 2


Pair = tuple[Load, Load]
"""Of the deployment, and of the replica alone right before or after it."""


@dataclass(frozen=True)
class Asked:
    """What is asked, and by how many clients."""

    words: str
    path: str
    clients: int


PARTS = {
    "api": Asked("an API of BentoML's", "/wait", 16),
    "asgi": Asked("an ASGI application in a service of BentoML's", "/application/", 100),
}


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Row]:
    rows: list[Row] = []
    async with installation(folder) as here:
        source = project(folder / "waits", WAITS)
        program = source / "service.py"
        program.write_text(program.read_text().replace(SERVICE, APPLICATION + SERVICE))
        for part in parts or PARTS:
            url, _ = await deploy(here, source, part, {"Waits": ONE_REPLICA})
            rows += await _asked(PARTS[part], url, _socket_of(here.data, part), folder, quick)
            await here.bentoml("deployment", "delete", part, folder=folder)
    return rows


async def _asked(asked: Asked, url: str, socket: str, folder: Path, quick: bool) -> list[Row]:
    seconds, pairs = (1.0 if quick else SECONDS), list[Pair]()
    ways = {"through": "", "alone": socket}
    for number in range(1 if quick else ROUNDS):
        loads: dict[str, Load] = {}
        for way in sorted(ways, reverse=bool(number % 2)):
            async with closed_loop(
                f"{url}{asked.path}",
                asked.clients,
                seconds,
                folder,
                socket=ways[way],
                warmup_s=WARMUP_S,
            ) as loads[way]:
                pass
        pairs.append((loads["through"], loads["alone"]))
    return _rows(asked, pairs)


def _socket_of(data: Path, name: str) -> str:
    """Where the one replica listens. Raises BenchmarkFailed."""
    for state in (data / "engine" / "replicas").glob(f"{name}-*/state.json"):
        return str(json.loads(state.read_text())["address"]).removeprefix("unix:")
    raise BenchmarkFailed("there is no replica")


def _rows(asked: Asked, pairs: Sequence[Pair]) -> list[Row]:
    def beside(figure: str, key: str, digits: int = 2) -> Row:
        through, alone = (
            [getattr(load, key) for load in side] for side in zip(*pairs, strict=True)
        )
        return Row(figure, ours=median(through), alone=median(alone), digits=digits)

    def added(key: str) -> float:
        """The median of the rounds' differences, ms."""
        return median(getattr(through, key) - getattr(alone, key) for through, alone in pairs)

    few, none = at_most(5), exactly(0)
    p95_ms = added("p95_ms")
    unanswered = sum(load.failed + load.refused for pair in pairs for load in pair)
    return [
        beside(
            f"{asked.clients} clients on {asked.words} of 100 ms: answers/s", "answers_per_s", 0
        ),
        beside("the same: p50, ms", "p50_ms"),
        beside("the same: p95, ms", "p95_ms"),
        beside("the same: p99, ms", "p99_ms"),
        Row("added p50, ms", ours=added("p50_ms")),
        Row("added p95, ms", few.text, verdict(few.holds(p95_ms)), p95_ms),
        Row("added p99, ms", ours=added("p99_ms")),
        Row("not answered", none.text, verdict(none.holds(unanswered)), unanswered, digits=0),
    ]
