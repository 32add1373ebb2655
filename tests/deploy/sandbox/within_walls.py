"""Runs one program within walls, and says what it printed: a program of its own, in which a test is
another user. It imports no more than it needs, since many tests start it.

Its standard input is what `walled.Place.look` writes. It ends with 77 where no walls can be put up.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from hotplate.deploy.process.detached import Process
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.process_scope import WatchedScope
from hotplate.deploy.sandbox.resource_limits import until_excess
from hotplate.deploy.sandbox.visible_files import VisibleFiles


async def main() -> None:
    job = json.load(sys.stdin)
    given = {name: value for name, value in job["view"].items()}
    lists = {name: tuple(map(tuple, given[name])) for name in ("layers",)}
    view = VisibleFiles(
        **given | {"reads": tuple(given["reads"]), "writes": tuple(given["writes"])} | lists
    )
    isolation = Isolation([Path(job["data"])], writes=job["shared"])
    if isolation.refusals:
        print(f"walls cannot be put up here: {isolation.refusals}", file=sys.stderr)
        sys.exit(77)
    isolation.up -= set(job["without"])
    own = Path(view.own)
    isolation.claim(own, [own])
    env = {"HOTPLATE_REPLICA_DIR": view.own, "PATH": os.environ["PATH"], **job["env"]}
    with tempfile.NamedTemporaryFile(dir=own.parent) as log:
        scope = WatchedScope([Path(job["mark"])], job["limit_bytes"])
        process = await isolation.spawn(job["argv"], env, own, log.name, view=view, scope=scope)
        if job["adopted"]:
            process.leave()
            adopted = Process.adopt(process.pid, process.start_time, process.others)
            assert adopted is not None
            process = adopted
        own.joinpath("go").touch()
        watch = asyncio.create_task(_watch(process, scope, job["limit_bytes"]))
        await process.wait()
        watch.cancel()
        print(json.dumps(excess) if (excess := scope.excess()) else log.read().decode())


async def _watch(process: Process, scope: WatchedScope, limit_bytes: int) -> None:
    await until_excess(scope, limit_bytes)
    await process.terminate(0)


if __name__ == "__main__":
    asyncio.run(main())
