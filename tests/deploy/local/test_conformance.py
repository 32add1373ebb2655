"""The engine of one machine does what every engine has to do."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hotplate.deploy.engine import Replica
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.host import host_in
from hotplate.deploy.workload import Resources, Workload
from tests.deploy.conformance import NONE, Conformance
from tests.support.deploy.fake_runtime import MACHINE, QUICK, FakeRuntime, workload
from tests.support.deploy.running import pid_of
from tests.support.patience import PATIENCE_S


class LocalEngineUnderTest:
    patience_s = PATIENCE_S
    removes_exactly = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "broken").touch()
        self.engine = self._made()

    def serving(self, name: str, resources: Resources = NONE) -> Workload:
        return workload(name, resources=resources)

    def failing(self, name: str) -> Workload:
        return workload(name, broken=str(self._folder / "broken"))

    def too_large(self, name: str) -> Workload:
        return workload(name, resources=Resources(cpus=MACHINE.cpus + 1))

    async def end(self, replica: Replica) -> None:
        os.kill(pid_of(self._folder, replica.id), signal.SIGKILL)

    async def restart(self) -> None:
        await self.engine.close()
        self.engine = self._made()
        await self.engine.start()

    def _made(self) -> LocalEngine:
        host = host_in(self._folder, MACHINE)
        return LocalEngine(host, FakeRuntime(), MACHINE, QUICK, random.Random())


@pytest.fixture
async def under_test(tmp_path: Path) -> AsyncIterator[LocalEngineUnderTest]:
    made = LocalEngineUnderTest(tmp_path)
    await made.engine.start()
    yield made
    await made.engine.stop_all()
    await made.engine.close()
    assert os.listdir(tmp_path / "replicas") == []


class TestLocalEngine(Conformance):
    """With processes of this machine."""
