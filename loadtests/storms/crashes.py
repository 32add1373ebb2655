"""Agents that are killed, damaged, paused and starved: every byte that they serve stays right.

An agent with a small disk tier and a small arena fetches trees and files at URLs, and is killed at
a random moment. While it is down, bits of its files are flipped and files are cut short, of every
kind that it keeps. Then each tree is read as a program reads it, and as a replica does. After that
come an agent that is paused, one without descriptors, one whose reader dies, and one whose disk is
full.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import random
import resource
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError
from hotplate.cache.manifest import CHUNK_BYTES, Manifest
from hotplate.cache.origins.blob_source import FsspecOrigin
from hotplate.cache.reader import open_file
from loadtests.harness.verdict import Verdict
from tests.support.cache.fakes import AgentProcess, OriginServer, PacedOrigin, publish, random_bytes
from tests.support.small_disk import MIB, small_disk

MODELS = 3
PAUSE_S = 5.0
READ_LIMIT_S = 90.0
BYTES_PER_S = 150e6
"""The origin's speed: a fetch takes long enough for a kill in it."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)


@dataclass
class Trial:
    """Models at an origin, an agent's folder, and what was found."""

    folder: Path
    rng: random.Random
    server: OriginServer
    models: dict[str, tuple[Manifest, dict[str, bytes]]]
    verdict: Verdict = field(default_factory=Verdict)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    @contextlib.asynccontextmanager
    async def agent(self, **options: Any) -> AsyncIterator[tuple[AgentProcess, AgentClient]]:
        options = {"data_dir": self.data, **options}
        with await asyncio.to_thread(AgentProcess, origin_url=self.server.url, **options) as agent:
            if not agent.url:
                raise RuntimeError(f"the agent does not start: {agent.refusal}")
            client = AgentClient(agent.url, patience_s=0.5)
            try:
                yield agent, client
            finally:
                await client.close()

    def url(self, path: str) -> str:
        return f"file://{self.folder}/files/{path}"


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    trial = _trial(folder, random.Random(flags.seed))
    try:
        for _ in range(flags.kills):
            await _kill(trial)
            _damage(trial)
            await _read_all(trial)
        await _pause(trial)
        await _starve(trial)
        await _lose_a_reader(trial)
        await _fill_the_disk(trial)
    finally:
        trial.server.close()
    figures = trial.verdict.figures
    figures |= dict(sorted(trial.counts.items()))
    for fault in ("kills", "bits flipped", "files cut short", "chunks mended", "refusals"):
        trial.verdict.expect(trial.counts.get(fault, 0) > 0, f"nothing was tried: no {fault}")
    return trial.verdict


def _trial(folder: Path, rng: random.Random) -> Trial:
    store = folder / "store"
    (folder / "files").mkdir()
    models = {}
    for number in range(MODELS):
        files: dict[str, bytes | None] = {
            "model.safetensors": random_bytes(3 * CHUNK_BYTES + number, number),
            "vocab.bin": random_bytes(CHUNK_BYTES + number, 50 + number),
            "config.json": b'{"model": %d}' % number,
        }
        manifest = publish(store, files)
        whole = {name: content for name, content in files.items() if content is not None}
        models[manifest.digest] = (manifest, whole)
        content = random_bytes((number + 1) * CHUNK_BYTES + 9, 70 + number)
        (folder / "files" / f"{number}.bin").write_bytes(content)
    origin = PacedOrigin(FsspecOrigin(f"file://{store}"), BYTES_PER_S)
    return Trial(folder, rng, OriginServer(store, origin), models)


async def _kill(trial: Trial) -> None:
    """An agent gets much work, and is killed in the middle of it."""
    rng = trial.rng
    limits = {
        "arena_limit_bytes": rng.choice((20, 40, 200)) * MIB,
        "disk_limit_bytes": rng.choice((0, 120, 150)) * MIB,
    }
    async with trial.agent(**limits) as (agent, client):
        for digest in rng.sample(list(trial.models), rng.randrange(MODELS)):
            await _ask(client.delete(digest))  # so that there is something to fetch
        work = [
            asyncio.create_task(_ask(client.tree(digest, wait="all"))) for digest in trial.models
        ]
        work += [
            asyncio.create_task(_ask(client.pull(trial.url(f"{number}.bin"))))
            for number in range(MODELS)
        ]
        if rng.random() < 0.3:
            work.append(asyncio.create_task(_ask(client.delete(rng.choice(list(trial.models))))))
        await asyncio.wait(work, timeout=rng.uniform(0.05, 2.5))
        agent.kill()
        trial.count("kills")
        trial.count("kills in the midst of work", any(not task.done() for task in work))
        await asyncio.gather(*work)


async def _ask(request: Any) -> None:
    with contextlib.suppress(CacheError):  # the agent is killed meanwhile
        await request


def _damage(trial: Trial) -> None:
    rng = trial.rng
    kept = [path for name in ("disk", "manifests") for path in (trial.data / name).iterdir()]
    kept += [path for name in ("ledger", "doors.json") if (path := trial.data / name).exists()]
    for path in rng.sample(kept, min(2, len(kept))):
        size = path.stat().st_size
        if not size:
            continue
        path.chmod(0o644)
        if rng.random() < 0.7:
            with path.open("r+b") as file:
                at = rng.randrange(size)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1 << rng.randrange(8)]))
            trial.count("bits flipped")
        else:
            os.truncate(path, rng.randrange(size))
            trial.count("files cut short")


async def _read_all(trial: Trial) -> None:
    async with trial.agent() as (agent, client):
        for digest, (_, files) in trial.models.items():
            try:
                async with asyncio.timeout(READ_LIMIT_S):
                    root = Path((await client.tree(digest, wait="all")).root)
                    for name, content in files.items():
                        trial.verdict.expect(
                            (root / name).read_bytes() == content, f"{name} is wrong"
                        )
                        trial.count("files read")
                    leased = await asyncio.to_thread(
                        _leased, agent.socket, root / "model.safetensors"
                    )
                    right = leased == files["model.safetensors"]
                    trial.verdict.expect(right, f"{digest}: its file is wrong by a lease")
            except (CacheError, OSError, TimeoutError) as error:
                trial.verdict.broken.append(f"a tree that the origin has was refused: {error!r}")
        trial.count("chunks mended", (await client.status())["mended_chunks"])


def _leased(socket_path: str, path: Path) -> bytes:
    """The file's bytes as a replica reads them."""
    with open_file(socket_path, str(path)) as file:
        file.wait_all()
        return bytes(file.view)


async def _pause(trial: Trial) -> None:
    """SIGSTOP for 5 s in the middle of a fetch."""
    async with trial.agent(data_dir=trial.folder / "paused") as (agent, client):
        digest = next(iter(trial.models))
        fetching = asyncio.create_task(client.tree(digest, wait="all"))
        await asyncio.sleep(0.1)
        trial.verdict.expect(not fetching.done(), "the pause came too late")
        agent.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(PAUSE_S)
        agent.process.send_signal(signal.SIGCONT)
        trial.verdict.expect((await fetching).complete, "a pause of 5 s was not survived")
        trial.count("pauses")


async def _starve(trial: Trial) -> None:
    """An agent with hardly any descriptors left refuses, and works again when it has more."""
    async with trial.agent(data_dir=trial.folder / "starved") as (agent, client):
        digest = next(iter(trial.models))
        root = (await client.tree(digest, wait="all")).root
        pid = agent.process.pid
        path = f"{root}/model.safetensors"
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        open_now = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_now + 7, usual[1]))
        files = []
        opening = [
            asyncio.create_task(asyncio.to_thread(open_file, agent.socket, path)) for _ in range(12)
        ]
        done, waiting = await asyncio.wait(opening, timeout=5)
        for task in done:
            if task.exception() is None:
                files.append(task.result())
        trial.count("refusals", sum(task.exception() is not None for task in done) + len(waiting))
        trial.verdict.expect(len(files) < 12, "descriptors never ran out")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
        for task in waiting:
            with contextlib.suppress(OSError):
                files.append(await task)
        for file in files:
            file.close()
        leased = await asyncio.to_thread(_leased, agent.socket, Path(path))
        trial.verdict.expect(
            leased == trial.models[digest][1]["model.safetensors"], "wrong after EMFILE"
        )


async def _lose_a_reader(trial: Trial) -> None:
    """A reader that is killed leaves no lease."""
    async with trial.agent(data_dir=trial.folder / "lost") as (agent, client):
        root = (await client.tree(next(iter(trial.models)), wait="all")).root
        path = f"{root}/model.safetensors"
        context = multiprocessing.get_context("spawn")
        reader = context.Process(target=_hold, args=(agent.socket, path), daemon=True)
        reader.start()
        await _until(client, leases=1)
        reader.kill()
        reader.join()
        await _until(client, leases=0)
        trial.count("readers killed")


def _hold(socket_path: str, path: str) -> None:
    with open_file(socket_path, path) as file:
        file.wait_all()
        time.sleep(60)  # until it is killed with the lease


async def _until(client: AgentClient, leases: int) -> None:
    async with asyncio.timeout(30):  # leases of others set no event
        while sum(blob["leases"] for blob in (await client.status())["blobs"]) != leases:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def _fill_the_disk(trial: Trial) -> None:
    """A disk with hardly any room: pulls are served from memory, and the log says why once."""
    small = trial.folder / "small"
    small.mkdir()
    with small_disk(small, 12 * MIB) as disk:
        options = {"data_dir": disk / "data", "disk_reserve_bytes": 1}
        async with trial.agent(**options) as (agent, client):
            for number in range(MODELS):
                await client.pull(trial.url(f"{number}.bin"))
            status = await client.status()
            trial.verdict.expect(
                bool(status["disk_trouble"]), "the status does not name the full disk"
            )
            trial.verdict.figures["of the full disk it is said"] = status["disk_trouble"]
            agent.kill()
            assert agent.process.stderr is not None
            logged = agent.process.stderr.read().count("is in memory only")
            trial.verdict.expect(logged == 1, f"the full disk was logged {logged} times")
            trial.count("full disks")
