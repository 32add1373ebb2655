"""What every engine has to do: the same tests for each.

A file of tests has a class of its own that inherits `Conformance` and a fixture `under_test`: an
engine on nothing, with what its surroundings must be able to do to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

import pytest

from hotplate.deploy.engine import Engine, Replica, ReplicaState
from hotplate.deploy.errors import UnknownReplica
from hotplate.deploy.standbys import StandbyMode, StandbySettings
from hotplate.deploy.workload import Resources, Workload
from tests.support.deploy.running import states, until

S = ReplicaState
NONE = Resources()


class EngineUnderTest(Protocol):
    """An engine that was started and has no replicas. `until` waits `patience_s` for each change,
    so nothing here sleeps."""

    patience_s: float
    """How long a replica may take to start, to end, or to be replaced."""

    removes_exactly: bool
    """Whether those that are to be removed are the ones that end, and not a preference."""

    @property
    def engine(self) -> Engine: ...

    def serving(self, name: str, resources: Resources = NONE) -> Workload:
        """One whose replicas become ready. Those of equal names are the same."""

    def failing(self, name: str) -> Workload:
        """One whose replicas print `it is broken` and end before they are ready."""

    def too_large(self, name: str) -> Workload:
        """One of which no node there can have a replica."""

    async def end(self, replica: Replica) -> None:
        """End it from outside, without a word to the engine."""

    async def restart(self) -> None:
        """Have the engine leave, and another one start on what it has left."""


class Conformance:
    async def test_nothing_is_there_that_nobody_wants(self, under_test: EngineUnderTest) -> None:
        engine = under_test.engine
        assert list(engine.replicas()) == []
        await engine.expect([under_test.serving("asleep")])
        assert list(engine.replicas()) == []
        with pytest.raises(UnknownReplica):
            await engine.logs("nobody-1-echo-abcde", 10)
        with pytest.raises(UnknownReplica):
            await self._followed(engine, "nobody-1-echo-abcde")

    async def test_a_wanted_one_becomes_ready(self, under_test: EngineUnderTest) -> None:
        wanted = under_test.serving("a", Resources(cpus=0.5, memory_bytes=64 << 20))
        await under_test.engine.scale(wanted, 1)
        (replica,) = await self.seen(under_test, states(S.READY))
        assert (replica.key, replica.resources) == (wanted.key, wanted.resources)
        assert replica.uid and replica.node in under_test.engine.capacity()
        assert replica.address and replica.ready_at is not None
        assert replica.restarts == 0 and replica.created_at <= replica.wanted_at < replica.ready_at
        consecutive = [p.name for p in replica.phases if p.name != "weights"]
        assert consecutive == ["instance", "environment", "process", "init"]
        shares_s = sum(phase.share_s for phase in replica.phases)
        assert shares_s == pytest.approx(replica.cold_start_s, rel=0.05)
        assert await under_test.engine.logs(replica.id, 10)

    async def test_the_same_call_again_changes_nothing(self, under_test: EngineUnderTest) -> None:
        engine, wanted = under_test.engine, under_test.serving("a")
        await engine.scale(wanted, 2)
        before = await self.seen(under_test, states(S.READY, S.READY))
        await engine.expect([wanted])
        await engine.scale(wanted, 2)
        await engine.scale(under_test.serving("b"), 1)
        after = await self.seen(under_test, states(S.READY, S.READY, S.READY))
        assert {each.id for each in before} < {each.id for each in after}
        assert len({each.uid for each in after}) == 3

    async def test_the_drained_go_and_as_many_as_wanted_stay(
        self, under_test: EngineUnderTest
    ) -> None:
        engine, wanted = under_test.engine, under_test.serving("a")
        await engine.scale(wanted, 3)
        before = await self.seen(under_test, states(S.READY, S.READY, S.READY))
        drained = before[1].id
        following = asyncio.create_task(self._followed(engine, drained))
        await engine.scale(wanted, 2, remove={drained})
        after = await self.seen(under_test, states(S.READY, S.READY))
        assert {each.id for each in after} < {each.id for each in before}
        if under_test.removes_exactly:
            assert {each.id for each in after} == {each.id for each in before} - {drained}
        await engine.scale(wanted, 0)
        await self.seen(under_test, states())
        assert await engine.logs(drained, 10), "its log is kept for a while"
        async with asyncio.timeout(under_test.patience_s):
            assert await following, "whoever follows it has it all, and its end"

    async def test_one_that_cannot_start_says_why_and_is_tried_again(
        self, under_test: EngineUnderTest
    ) -> None:
        engine = under_test.engine
        await engine.scale(under_test.failing("a"), 1)
        (replica,) = await self.seen(under_test, states(S.BACKOFF))
        assert replica.reason and replica.ready_at is None
        assert replica.log_tail[-1] == "it is broken"
        (again,) = await self.seen(under_test, lambda all: bool(all and all[0].restarts > 1))
        assert again.id == replica.id
        await engine.scale(under_test.failing("a"), 0)
        await self.seen(under_test, states())

    async def test_one_that_no_node_has_room_for_is_pending_and_says_so(
        self, under_test: EngineUnderTest
    ) -> None:
        engine = under_test.engine
        await engine.scale(under_test.too_large("a"), 1)
        (replica,) = await self.seen(
            under_test, lambda all: states(S.PENDING)(all) and bool(all[0].reason)
        )
        assert not replica.address
        await engine.scale(under_test.serving("b"), 1)
        await self.seen(under_test, states(S.PENDING, S.READY))
        assert not replica.node
        await engine.scale(under_test.too_large("a"), 0)
        await self.seen(under_test, states(S.READY))

    async def test_one_that_is_ended_from_outside_is_replaced(
        self, under_test: EngineUnderTest
    ) -> None:
        await under_test.engine.scale(under_test.serving("a"), 1)
        (replica,) = await self.seen(under_test, states(S.READY))
        await under_test.end(replica)

        def replaced(replicas: Sequence[Replica]) -> bool:
            ready = [each for each in replicas if each.state is S.READY]
            return len(ready) == 1 and (ready[0].id != replica.id or ready[0].restarts > 0)

        await self.seen(under_test, replaced)

    async def test_what_runs_outlives_the_engine_until_it_is_not_expected(
        self, under_test: EngineUnderTest
    ) -> None:
        kept, dropped = under_test.serving("kept"), under_test.serving("dropped")
        await under_test.engine.scale(kept, 1)
        await under_test.engine.scale(dropped, 1)
        before = await self.seen(under_test, states(S.READY, S.READY))
        await under_test.restart()
        after = await self.seen(under_test, states(S.READY, S.READY))
        assert {(r.id, r.uid, r.node) for r in after} == {(r.id, r.uid, r.node) for r in before}
        ready_at = {r.id: r.ready_at for r in before}
        for replica in after:  # some engines are told whole seconds only
            assert replica.ready_at == pytest.approx(ready_at[replica.id], abs=1.0)
        await under_test.engine.scale(kept, 1)
        await under_test.engine.scale(under_test.serving("other"), 1)
        both = await self.seen(under_test, states(S.READY, S.READY, S.READY))
        assert {each.id for each in before} < {each.id for each in both}, "nobody has said all"
        await under_test.engine.expect([kept, under_test.serving("other")])
        left = await self.seen(under_test, states(S.READY, S.READY))
        assert {each.key.deployment for each in left} == {"kept", "other"}

    async def test_what_sleeps_is_expected_and_wakes_and_what_is_not_expected_ends(
        self, under_test: EngineUnderTest
    ) -> None:
        engine, sleeper = under_test.engine, under_test.serving("sleeper")
        await engine.expect([sleeper])
        await engine.scale(sleeper, 0)
        assert list(engine.replicas()) == []
        await engine.scale(sleeper, 1)
        await engine.expect([sleeper])
        await self.seen(under_test, states(S.READY))
        await engine.scale(under_test.serving("new"), 1)  # it is expected by that
        await self.seen(under_test, states(S.READY, S.READY))
        await engine.expect([])
        await self.seen(under_test, states())
        await engine.scale(sleeper, 1)
        await self.seen(under_test, states(S.READY))

    async def test_what_is_taken_is_given_back(self, under_test: EngineUnderTest) -> None:
        def taken() -> float:
            return sum(node.taken.cpus for node in under_test.engine.capacity().values())

        before = taken()
        wanted = under_test.serving("a", Resources(cpus=0.5, memory_bytes=64 << 20))
        await under_test.engine.scale(wanted, 1)
        await self.seen(under_test, states(S.READY))
        assert taken() == pytest.approx(before + 0.5)
        await under_test.engine.scale(wanted, 0)
        await self.seen(under_test, states())
        assert taken() == pytest.approx(before)

    async def test_nodes_have_no_more_than_there_may_ever_be(
        self, under_test: EngineUnderTest
    ) -> None:
        nodes, bounds = under_test.engine.capacity().values(), under_test.engine.bounds()
        assert nodes and all(isinstance(node.labels, Mapping) for node in nodes)
        if bounds is not None:
            assert sum(node.in_all.cpus for node in nodes) <= bounds.cpus
            assert sum(node.in_all.memory_bytes for node in nodes) <= bounds.memory_bytes

    async def test_its_standbys_are_as_they_are_set(self, under_test: EngineUnderTest) -> None:
        standbys = under_test.engine.standbys
        settings = StandbySettings(StandbyMode.FIXED, count=0)
        standbys.set(settings)
        standbys.allow({"acme": 1})
        await under_test.engine.scale(under_test.serving("a"), 1)
        await self.seen(under_test, states(S.READY))
        standbys.forget(["gone"])
        assert standbys.settings == settings
        assert standbys.memory_bytes == sum(view.memory_bytes for view in standbys.views()) == 0

    async def test_all_of_it_ends_at_once(self, under_test: EngineUnderTest) -> None:
        await under_test.engine.scale(under_test.serving("a"), 2)
        await under_test.engine.scale(under_test.failing("b"), 1)
        await self.seen(under_test, states(S.READY, S.READY, S.BACKOFF))
        await under_test.engine.stop_all()
        assert list(under_test.engine.replicas()) == []

    async def _followed(self, engine: Engine, replica: str) -> str:
        """All of its log, once it has ended."""
        async with aclosing(engine.follow(replica)) as pieces:
            return "".join([piece async for piece in pieces])

    async def seen(
        self, under_test: EngineUnderTest, condition: Callable[[Sequence[Replica]], bool]
    ) -> Sequence[Replica]:
        return await until(under_test.engine, condition, under_test.patience_s)
