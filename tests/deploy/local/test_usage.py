"""What replicas of this machine have used, as their control groups say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState, ReplicaUsage
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.host import host_in
from hotplate.deploy.local.usage import RunningReplica, read_usage
from hotplate.deploy.sandbox.cgroups import Cgroups
from tests.support.deploy.fake_runtime import MACHINE, QUICK, FakeRuntime, workload
from tests.support.deploy.running import started, states, until

MIB = 1 << 20


async def test_a_replica_has_its_own_cpu_time_and_memory(tmp_path: Path) -> None:
    cgroups = Cgroups(tmp_path, 8 << 30, shared_cpus=1)
    if not cgroups.enforced:
        pytest.skip("this user may not make control groups here")
    engine = LocalEngine(host_in(tmp_path, MACHINE, cgroups=cgroups), FakeRuntime(), MACHINE, QUICK)
    async with started(engine):
        assert await engine.usage.read() == {}
        await engine.scale(workload("large", eats_mib=100), 1)
        await engine.scale(workload("small"), 1)
        found = await until(engine, states(ReplicaState.READY, ReplicaState.READY))
        used = await engine.usage.read()
        of = {each.key.deployment: used[each.id] for each in found}
        for one in of.values():
            assert one.cpu_s is not None
            assert 0 < one.cpu_s < 60
            assert one.gpu_share is None
        large, small = of["large"].memory_bytes, of["small"].memory_bytes
        assert large is not None
        assert small is not None
        assert large > 100 * MIB
        assert 0 < small < 100 * MIB


def test_without_a_control_group_the_memory_is_what_was_read_and_no_more_is_known() -> None:
    found = read_usage([RunningReplica("a", (), 7), RunningReplica("b", (), 0)])
    assert found == {"a": ReplicaUsage(memory_bytes=7), "b": ReplicaUsage()}
