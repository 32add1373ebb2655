"""What a replica puts in place of the files that the platform reads: it fails alone, if at all."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path

from tests.security.evil import EVIL
from tests.security.grounds import Grounds, changed, grounds, service
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.calling import call

PIPES = """
    import os
    for name in ("phases.jsonl", "methods.json"):
        path = os.environ["HOTPLATE_REPLICA_DIR"] + "/" + name
        if os.path.exists(path):
            os.unlink(path)
        os.mkfifo(path)
        os.open(path, os.O_RDWR)
"""
ENDLESS = """
    import os
    for name in ("phases.jsonl", "methods.json"):
        path = os.environ["HOTPLATE_REPLICA_DIR"] + "/" + name
        if os.path.exists(path):
            os.unlink(path)
        os.symlink("/dev/zero", path)
"""
NONSENSE = r"""
    import os
    for name in ("phases.jsonl", "methods.json"):
        path = os.environ["HOTPLATE_REPLICA_DIR"] + "/" + name
        with open(path, "wb") as file:
            file.write(b"[" * 50_000 + b"\n\xff\x00\n")
            file.write(b'{"phase": "init", "event": "begin", "at": NaN}\n')
            file.write(b'{"phase": "init", "event": "begin", "at": -1e308}\n')
            file.truncate(1 << 40)
    print("\x1b]0;owned\x07\x1b[2J\u202e", flush=True)
"""
DEEP = """
    import os
    at = os.open(os.environ["HOTPLATE_REPLICA_DIR"], os.O_RDONLY)
    for _ in range(10_000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
"""
ATTACKS = {"pipes": PIPES, "endless": ENDLESS, "nonsense": NONSENSE, "deep": DEEP}


async def deploy(rough: RoughClient, bento: Bento, *names: str) -> None:
    """Deployments whose service runs the attack of that name when it is made."""
    tag = await rough.push(changed(bento, "liar", EVIL.replace("Evil", "Liar")))
    for name in names:
        code = textwrap.dedent(ATTACKS[name])
        await rough.deploy(name, tag, Liar=service(AT_START=code))


async def answers(on: Grounds) -> bool:
    """Whether the control plane does, soon."""
    try:
        async with asyncio.timeout(5.0):
            return await on.platform.healthy()
    except TimeoutError:
        return False


class TestWhatAReplicaSaysOfItself:
    async def test_costs_nobody_else_anything(self, field: Grounds, any_bento: Bento) -> None:
        async with RoughClient(field.platform) as rough:
            await deploy(rough, any_bento, *ATTACKS)
            for name in ATTACKS:
                await rough.settled(name, "running", "failed")
                assert await answers(field)
                assert "\x1b]" not in await field.platform.hotplate("logs", name)
        assert await call(f"{field.victim}/greet") == "hello you"
        for name in ATTACKS:
            await field.platform.delete(name)
        assert await answers(field)
        replicas = field.platform.data / "engine" / "replicas"

        async def gone() -> bool:
            left = [path.name for path in replicas.iterdir()]
            return not [name for name in left if name.startswith(tuple(ATTACKS))]

        await until(gone)

    async def test_holds_up_the_control_plane_that_reads_it(
        self, any_bento: Bento, user: int, built: Path
    ) -> None:
        around = grounds(any_bento, user, built, without="disbelief", deployments=["victim"])
        async with around as credulous:
            await deploy(credulous.rough, any_bento, "pipes")

            async def hangs() -> bool:
                return not await answers(credulous)

            await until(hangs)
