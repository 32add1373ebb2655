"""What is taken from a node when no deployment uses it any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set

import pytest

from hotplate.platform.upkeep.sweeper import Sweeper, unused
from tests.support.control_plane.fake_engine import FakeStandbys


class FakeAgent:
    """Trees that nobody has asked for in a while; one of them is asked for just now."""

    def __init__(self, idle_s: Mapping[str, float], busy: str = "") -> None:
        self.trees = dict(idle_s)
        self._busy = busy

    async def idle_s(self) -> Mapping[str, float]:
        return dict(self.trees)

    async def delete(self, manifest: str, idle_s: float) -> bool:
        if manifest == self._busy or self.trees[manifest] < idle_s:
            return False
        del self.trees[manifest]
        return True


class FakeEnvironments:
    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def manifests(self) -> Set[str]:
        return {"environment"}

    async def gone(self, owners: Callable[[], Awaitable[Set[str]]]) -> Sequence[str]:
        return sorted({"acme's", "gone's"} - await owners())

    async def forget(self, folders: Sequence[str]) -> None:
        self.forgotten.extend(folders)


class FakeCode:
    def forget(self, owners: Set[str]) -> None:
        assert owners == {"acme's"}


class FakeTasks:
    async def sweep(self) -> None: ...


async def owners() -> Set[str]:
    return {"acme's"}


def sweeper_of(
    wanted: Set[str] | None,
    agent: FakeAgent,
    environments: FakeEnvironments,
    standbys: FakeStandbys | None = None,
) -> Sweeper:
    return Sweeper(
        lambda: wanted,
        agent,
        environments,
        FakeTasks(),
        standbys or FakeStandbys(),
        [FakeCode()],
        owners,
        unused_files_s=60,
    )


def test_files_go_when_no_deployment_uses_them_and_some_time_has_passed() -> None:
    idle_s = {"used": 999.0, "old": 61.0, "fresh": 59.0}
    gone = unused(idle_s, {"used"}, after_s=60)
    assert list(gone) == ["old"]
    assert "nobody asked for them for 61 s" in gone["old"]


def test_nothing_goes_while_the_deployments_are_not_known() -> None:
    assert unused({"old": 999.0}, None, after_s=0) == {}


async def test_a_sweep_leaves_what_is_wanted_and_what_is_asked_for_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    agent, environments = FakeAgent({"a": 90, "b": 90, "c": 90}, busy="c"), FakeEnvironments()
    agent.trees["environment"] = 90
    await sweeper_of({"a"}, agent, environments).sweep()
    assert set(agent.trees) == {"a", "c", "environment"}
    assert "nobody asked for them for 90 s" in caplog.text


async def test_a_sweep_touches_nothing_before_all_deployments_are_read() -> None:
    agent = FakeAgent({"a": 90})
    await sweeper_of(None, agent, FakeEnvironments()).sweep()
    assert set(agent.trees) == {"a"}


async def test_of_an_organization_that_is_gone_its_standbys_end_before_their_files_go() -> None:
    environments, standbys = FakeEnvironments(), FakeStandbys()
    await sweeper_of(set(), FakeAgent({}), environments, standbys).sweep()
    assert standbys.forgotten == environments.forgotten == ["gone's"]
