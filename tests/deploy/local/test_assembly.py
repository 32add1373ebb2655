"""The local engine with its parts, as a control plane asks for it."""

from __future__ import annotations

from pathlib import Path

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local.assembly import AssemblySettings, assemble
from hotplate.deploy.standbys import StandbyMode, StandbySettings
from tests.support.deploy.fake_runtime import FakeRuntime, workload
from tests.support.deploy.running import states, until

GIB = 1 << 30


async def test_an_engine_of_this_machine_is_made_of_settings_alone(tmp_path: Path) -> None:
    settings = AssemblySettings(
        engine_folder=tmp_path / "engine",
        environments_folder=tmp_path / "environments",
        hidden=(),
        visible_gpus="",
        arena_bytes=GIB,
        cpu_overcommit=2.0,
        standby=StandbySettings(StandbyMode.OFF),
    )
    for folder in (settings.engine_folder, settings.environments_folder):
        folder.mkdir()
    parts = await assemble(settings)
    supply = parts.supply
    assert supply.most.memory_bytes == parts.machine.usable_bytes - GIB
    assert (supply.most.gpus, supply.gpu_names) == (0, ())
    assert supply.cpus_shared
    assert supply.memory_note == " beside the 1.0 for model files (arena_bytes)"
    assert parts.builds.memory_bytes == parts.machine.memory_bytes // 2
    assert parts.isolation.missing == "nothing is to be hidden"

    engine = parts.engine(FakeRuntime())
    assert engine.standbys.settings == settings.standby
    await engine.start()
    await engine.scale(workload(), 1)
    (replica,) = await until(engine, states(ReplicaState.READY))
    (node,) = engine.capacity().values()
    assert node.in_all.cpus == 2 * supply.most.cpus
    assert (await engine.logs(replica.id, 1)) == ["line 0"]
    await engine.stop_all()
    await engine.close()
    parts.close()
