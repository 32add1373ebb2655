"""The local engine where a disk fills up, or descriptors run out: what the machine lacks is waited
for."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.errors import PrepareFailed, SpawnFailed
from hotplate.machine.descriptors import short
from tests.deploy.local.test_engine import running
from tests.support.deploy.fake_runtime import FakeRuntime, workload
from tests.support.deploy.running import pid_of, states, until
from tests.support.patience import until as eventually
from tests.support.small_disk import MIB, fill, small_disk

S = ReplicaState
FULL = "the disk of /data is full; free some space"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 2 * MIB) as folder:
        yield folder


def spawn_failure() -> SpawnFailed:
    error = SpawnFailed("program cannot be started: Too many open files")
    error.__cause__ = OSError(errno.EMFILE, "Too many open files")
    return error


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (PrepareFailed(FULL, retry=True, no_room=True), FULL),
        (OSError(errno.ENOSPC, "No space left on device", "/data"), FULL),
        (OSError(errno.EMFILE, "Too many open files", "."), short()),
        (OSError(errno.ENFILE, "Too many open files in system", "."), short()),
        (spawn_failure(), short()),
    ],
)
async def test_a_replica_for_which_the_machine_lacks_something_waits_and_then_starts(
    tmp_path: Path, failure: Exception, reason: str
) -> None:
    runtime = FakeRuntime()
    runtime.failure = failure
    async with running(tmp_path, runtime) as engine:
        await engine.scale(workload(), 1)
        await until(engine, lambda _: len(runtime.prepared) > 3)
        (replica,) = await until(engine, states(S.PENDING))
        assert replica.reason == reason
        assert replica.restarts == 0
        runtime.failure = None
        (replica,) = await until(engine, states(S.READY))
        assert replica.restarts == 0
        assert replica.phases[0].name == "instance"
        assert replica.phases[0].start == pytest.approx(replica.created_at, abs=0.1)


async def test_a_replica_serves_on_while_its_record_cannot_be_written(disk: Path) -> None:
    async with running(disk / "engine") as engine:
        await engine.scale(workload(), 1)
        (replica,) = await until(engine, states(S.READY))
        folder = disk / "engine" / "replicas" / replica.id
        pid = pid_of(disk / "engine", replica.id)
        (folder / "work" / "unready").touch()
        (folder / "state.json").unlink()
        filler = fill(disk)
        await until(engine, states(S.UNREADY))
        (folder / "work" / "unready").unlink()
        await until(engine, states(S.READY))
        assert not (folder / "state.json").exists(), "the record could be written"
        filler.unlink()

        async def recorded() -> bool:
            return (folder / "state.json").exists()

        await eventually(recorded, 5)
        assert pid_of(disk / "engine", replica.id) == pid
        assert engine.replicas()[0].restarts == 0
