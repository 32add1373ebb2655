"""How standbys are made and ended, with real processes."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.records import Records
from hotplate.deploy.local.runtime import Warm
from hotplate.deploy.local.standby.lifecycle import StandbyLives
from hotplate.deploy.local.standby.pool import StandbyPool
from hotplate.deploy.sandbox.cgroups import Cgroups
from hotplate.deploy.sandbox.isolation import Isolation
from tests.support.deploy.running import runs
from tests.support.patience import PATIENCE_S

DEAF = "trap '' TERM; echo $$ > pid.draft; mv pid.draft pid; exec sleep 600"


async def test_one_that_is_cancelled_twice_on_its_way_leaves_nothing(tmp_path: Path) -> None:
    cgroups = Cgroups(tmp_path, 1 << 30, root=tmp_path / "no-such-root")
    records, changes = Records(tmp_path), asyncio.Event()
    host = ProcessHost(records=records, cgroups=cgroups, isolation=Isolation())
    lives = StandbyLives(host, random.Random(1), changes.set)
    pool = StandbyPool(Warm("e", ("/bin/sh", "-c", DEAF), {"PATH": os.defpath}, {}), ())
    making = lives.make(pool, PATIENCE_S, lambda seconds: None)
    (standby,) = pool.making
    pid_file = records.standby(standby) / "work" / "pid"
    async with asyncio.timeout(PATIENCE_S):
        while not pid_file.exists():  # noqa: ASYNC110 - no news
            await asyncio.sleep(0.005)
    pid = int(pid_file.read_text())
    making.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    making.cancel()
    await asyncio.wait({making})
    assert making.cancelled()
    assert not runs(pid)
    assert os.listdir(tmp_path / "standbys") == []
    assert not pool.count
    assert changes.is_set()
