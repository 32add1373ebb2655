"""What is taken from a node when no deployment uses it any more, and from the origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import pytest

from hotplate.cache.store.blobs import Digests
from hotplate.platform.upkeep.sweeper import Sweeper, unused


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
        self.asked: list[tuple[Set[str], int]] = []

    def manifests(self) -> Set[str]:
        return {"environment"}

    async def sweep(self, wanted: Set[str], spare: int) -> Mapping[str, str]:
        self.asked.append((wanted, spare))
        return {}

    async def forget(self, organizations: Set[str]) -> Sequence[str]:
        assert organizations == {"acme"}
        return []


class FakeOrigin:
    def __init__(self) -> None:
        self.asked: list[Set[str]] = []

    async def sweep(self, wanted: Set[str]) -> Digests:
        self.asked.append(wanted)
        return Digests(frozenset({"old"}))


class FakeTasks:
    async def sweep(self) -> None: ...


async def organizations() -> Set[str]:
    return {"acme"}


def sweeper_of(
    wanted: Set[str] | None, agent: FakeAgent, environments: FakeEnvironments, origin: FakeOrigin
) -> Sweeper:
    return Sweeper(
        lambda: wanted,
        agent,
        environments,
        origin,
        FakeTasks(),
        organizations,
        unused_files_s=60,
        spare_environments=2,
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
    origin = FakeOrigin()
    sweeper = sweeper_of({"a"}, agent, environments, origin)
    await sweeper.sweep()
    await sweeper.sweep_origin()
    assert set(agent.trees) == {"a", "c", "environment"}
    assert environments.asked == [({"a"}, 2)]
    assert origin.asked == [{"a"}]
    assert "1 manifests and 0 blobs that no version names are removed" in caplog.text


async def test_a_sweep_touches_nothing_before_all_deployments_are_read() -> None:
    agent, environments, origin = FakeAgent({"a": 90}), FakeEnvironments(), FakeOrigin()
    sweeper = sweeper_of(None, agent, environments, origin)
    await sweeper.sweep()
    await sweeper.sweep_origin()
    assert set(agent.trees) == {"a"}
    assert environments.asked == []
    assert origin.asked == []
