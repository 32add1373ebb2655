"""What is taken from a node when no deployment uses it any more."""

from __future__ import annotations

from collections.abc import Mapping, Set

from hotplate.platform.controller.sweeper import Sweeper, unused


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

    async def sweep(self, wanted: Set[str], spare: int) -> Mapping[str, str]:
        self.asked.append((wanted, spare))
        return {}


def test_files_go_when_no_deployment_uses_them_and_some_time_has_passed() -> None:
    idle_s = {"used": 999.0, "old": 61.0, "fresh": 59.0}
    gone = unused(idle_s, {"used"}, after_s=60)
    assert list(gone) == ["old"]
    assert "nobody asked for them for 61 s" in gone["old"]


def test_nothing_goes_while_the_deployments_are_not_known() -> None:
    assert unused({"old": 999.0}, None, after_s=0) == {}


async def test_a_sweep_leaves_what_is_wanted_and_what_is_asked_for_meanwhile() -> None:
    agent, environments = FakeAgent({"a": 90, "b": 90, "c": 90}, busy="c"), FakeEnvironments()
    sweeper = Sweeper(lambda: {"a"}, agent, environments, unused_files_s=60, spare_environments=2)
    await sweeper.sweep()
    assert set(agent.trees) == {"a", "c"}
    assert environments.asked == [({"a"}, 2)]


async def test_a_sweep_touches_nothing_before_all_deployments_are_read() -> None:
    agent, environments = FakeAgent({"a": 90}), FakeEnvironments()
    sweeper = Sweeper(lambda: None, agent, environments, unused_files_s=0, spare_environments=0)
    await sweeper.sweep()
    assert set(agent.trees) == {"a"}
    assert environments.asked == []
