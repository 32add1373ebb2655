"""Each strategy in a small world in which replicas start, crash and drain at random."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace

import pytest

from hotplate.platform.controller.rollouts.strategies import (
    WATCH_S,
    EntryReplicas,
    Phase,
    Progress,
    Shift,
    Strategy,
    Turnover,
    shift,
)

SHARING = [each for each in Strategy if each.shares]


@dataclass
class Simulation:
    """Replicas of two revisions, each in one of a few states, and a clock."""

    strategy: Strategy
    wanted: int
    size: int
    chance: random.Random
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)
    now: float = 1000.0
    paused: bool = False
    ramp_s: float = 30.0
    shifts: list[Shift] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.old = ["ready"] * self.wanted

    def turnover(self) -> Turnover:
        return Turnover(
            self.strategy,
            self.wanted,
            self.size,
            counted(self.old),
            counted(self.new),
            self.now,
            progress=self.progress,
            paused=self.paused,
            ramp_s=self.ramp_s,
        )

    def step(self) -> Shift:
        """Does what the core says, as the planner would, and holds it to what it promises."""
        turnover = self.turnover()
        found = shift(turnover)
        self.shifts.append(found)
        self.progress = found.progress
        before = turnover.old.ready + turnover.new.ready
        for replicas, count in ((self.old, found.old), (self.new, found.new)):
            self._scale(replicas, count)
        self.check(before)
        return found

    def _scale(self, replicas: list[str], count: int) -> None:
        live = [each for each in replicas if each != "ending"]
        for state in ("failing", "starting", "ready"):
            while len(live) > count and state in live:
                live.remove(state)
                replicas.remove(state)
                if state == "ready":
                    replicas.append("ending")
        while len(live) < count and "ending" in replicas:
            replicas.remove("ending")
            replicas.append("ready")
            live.append("ready")
        replicas += ["starting"] * (count - len(live))

    def check(self, ready_before: int) -> None:
        there, ready = len(self.old) + len(self.new), (self.old + self.new).count("ready")
        full = max(self.wanted, self.size)
        most = {
            Strategy.NONE: self.wanted + self.size,
            Strategy.RECREATE: full,
            Strategy.ROLLING: full + math.ceil(full / 4),
            Strategy.RAMPED: full + 1,
            Strategy.CONTROLLED: full,
        }[self.strategy]
        assert there <= most
        if self.strategy in (Strategy.ROLLING, Strategy.RAMPED, Strategy.NONE):
            assert ready >= min(ready_before, self.wanted)
        if self.strategy is Strategy.RECREATE:
            assert not self.new or not self.old

    def happen(self, *, crashes: bool) -> None:
        """Something becomes of one replica, and time passes."""
        self.now += self.chance.choice((0.0, 0.5, 3.0, 20.0))
        replicas = self.chance.choice((self.old, self.new))
        if not replicas:
            return
        index = self.chance.randrange(len(replicas))
        state = replicas[index]
        if state in ("starting", "failing"):
            replicas[index] = "ready"
        elif state == "ending":
            del replicas[index]
        elif crashes and self.chance.random() < 0.2:
            replicas[index] = "failing"


def counted(replicas: list[str]) -> EntryReplicas:
    return EntryReplicas(
        replicas.count("ready"),
        replicas.count("starting"),
        replicas.count("failing"),
        ending=replicas.count("ending"),
    )


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("wanted", range(8))
def test_bounds_hold_at_every_instant_and_the_new_revision_ends_alone(
    strategy: Strategy, wanted: int
) -> None:
    for seed in range(30):
        chance = random.Random(seed)
        size = max(1, wanted if seed % 3 else chance.randrange(1, 9))
        world = Simulation(strategy, wanted, size, chance)
        for number in range(3000):
            found = world.step()
            if found.over:
                break
            if number % 7 == 6 and number < 300:
                world.paused = not world.paused
            elif number >= 300:
                world.paused = False
            if number % 11 == 10:  # the control plane is killed before it has noted the step
                world.progress = Progress()
            world.happen(crashes=number < 300)
        else:
            pytest.fail(f"{strategy} of {wanted} by {size} does not end (seed {seed})")
        assert world.new.count("ready") >= world.size


@pytest.mark.parametrize("strategy", SHARING)
@pytest.mark.parametrize("crash", [False, True])
def test_nothing_moves_while_it_is_paused(strategy: Strategy, crash: bool) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        world = Simulation(strategy, 4, 4, chance)
        for _ in range(chance.randrange(2, 40)):
            if world.step().over:
                break
            world.happen(crashes=crash)
        world.paused = True
        found = world.step()
        assert found.phase is Phase.PAUSED
        assert not found.over
        before = (sorted(world.old), sorted(world.new))
        world.now += 3600
        world.step()
        assert (sorted(world.old), sorted(world.new)) == before


def walked(strategy: Strategy, wanted: int, **changes: object) -> list[tuple[int, int]]:
    """The numbers of (old, new) that are ready, in turn, where all goes well and at once."""
    world = Simulation(strategy, wanted, max(1, wanted), random.Random(0), **changes)  # type: ignore[arg-type]
    ready = []
    for _ in range(200):
        over = world.step().over
        ready.append((world.old.count("ready"), world.new.count("ready")))
        if over:
            break
        before = (*world.old, "|", *world.new)
        world.old = [each for each in world.old if each != "ending"]
        world.new = ["ready" for _ in world.new]
        if before == (*world.old, "|", *world.new):
            world.now += 1
    return list(dict.fromkeys(ready))


def test_a_rolling_update_has_a_quarter_more_and_keeps_one_to_compare_with() -> None:
    assert walked(Strategy.ROLLING, 4) == [(4, 0), (3, 1), (2, 2), (1, 3), (1, 4), (0, 4)]
    assert walked(Strategy.ROLLING, 1) == [(1, 0), (1, 1), (0, 1)]
    assert walked(Strategy.ROLLING, 5) == [(5, 0), (3, 2), (1, 4), (1, 5), (0, 5)]


def test_a_ramp_goes_one_by_one_with_one_more() -> None:
    assert walked(Strategy.RAMPED, 3) == [(3, 0), (3, 1), (2, 1), (2, 2), (1, 2), (1, 3)]


def test_a_controlled_one_begins_with_a_fifth_and_doubles_its_steps() -> None:
    assert walked(Strategy.CONTROLLED, 7) == [(5, 0), (5, 2), (1, 2), (1, 6), (0, 6), (0, 7)]
    assert walked(Strategy.CONTROLLED, 5) == [(4, 0), (4, 1), (2, 1), (2, 3), (0, 3), (0, 5)]
    assert walked(Strategy.CONTROLLED, 1) == [(0, 0), (0, 1)]


def test_recreate_ends_the_old_one_first() -> None:
    assert walked(Strategy.RECREATE, 3) == [(0, 0), (0, 3)]


def test_of_what_sleeps_one_new_replica_starts_and_none_of_the_old() -> None:
    for strategy in Strategy:
        found = shift(Turnover(strategy, 0, 1, EntryReplicas(), EntryReplicas(), 1000.0))
        assert (found.old, found.new, found.over) == (0, 1, False)
        ready = EntryReplicas(ready=1)
        progress = Progress(1, 0.0)
        found = shift(Turnover(strategy, 0, 1, EntryReplicas(), ready, 1000.0, progress))
        assert (found.old, found.new, found.over) == (0, 1, True), strategy


def ramp(step: int, step_at: float | None, now: float, new: int) -> Shift:
    old, ready = EntryReplicas(ready=5 - step), EntryReplicas(ready=new)
    return shift(Turnover(Strategy.RAMPED, 4, 4, old, ready, now, Progress(step, step_at)))


def test_a_step_of_a_ramp_lasts_as_long_as_was_said() -> None:
    assert ramp(2, None, 100.0, 2).progress == Progress(2, 100.0)
    assert ramp(2, None, 100.0, 1).progress == Progress(2)
    held = ramp(2, 100.0, 129.9, 2)
    assert (held.progress, held.next_at, held.new, held.old) == (Progress(2, 100.0), 130.0, 2, 3)
    gone = ramp(2, 100.0, 130.0, 2)
    assert (gone.progress, gone.next_at, gone.old) == (Progress(3), None, 2)
    assert ramp(4, 100.0, 129.9, 4).over is False
    assert ramp(4, 100.0, 130.0, 4).over is True


def test_a_clock_that_is_set_back_makes_no_step_longer_than_it_is() -> None:
    assert ramp(2, 5000.0, 100.0, 2).next_at == 130.0


def test_old_and_new_answer_beside_each_other_before_the_old_one_ends() -> None:
    one = EntryReplicas(ready=1)
    begun = Turnover(Strategy.ROLLING, 1, 1, one, one, 100.0)
    found = shift(begun)
    assert (found.over, found.old, found.next_at) == (False, 1, 100.0 + WATCH_S)
    later = replace(begun, progress=found.progress, now=100.0 + WATCH_S)
    assert shift(later).over
    assert shift(replace(begun, answers=1000)).over
    assert shift(replace(begun, compared=False)).over
    assert shift(replace(begun, old=EntryReplicas(failing=1))).over


def test_a_revision_serves_alone_only_when_all_that_it_calls_is_there() -> None:
    for strategy in Strategy:
        there = Turnover(
            strategy, 1, 1, EntryReplicas(), EntryReplicas(ready=1), 100.0, Progress(1, 0.0)
        )
        assert shift(there).over
        assert not shift(replace(there, complete=False)).over


def test_where_no_more_fit_it_is_over_with_fewer() -> None:
    some = EntryReplicas(ready=1, failing=2, waiting=2)
    for strategy in (Strategy.NONE, Strategy.RECREATE, Strategy.CONTROLLED):
        there = Turnover(strategy, 3, 3, EntryReplicas(), some, 100.0, Progress(3, 0.0))
        assert shift(there).over, strategy
        granted = replace(there, new=EntryReplicas(ready=1), granted=1)
        assert shift(granted).over, strategy


def test_what_more_is_wanted_starts_of_the_new_one_as_soon_as_it_answers() -> None:
    old, new = EntryReplicas(ready=2), EntryReplicas(ready=1)
    found = shift(Turnover(Strategy.ROLLING, 6, 6, old, new, 100.0))
    assert (found.old, found.new) == (2, 6)
    found = shift(Turnover(Strategy.ROLLING, 6, 6, old, EntryReplicas(starting=1), 100.0))
    assert found.old == 6


def test_recreate_waits_for_all_that_the_old_revision_has() -> None:
    gone = Turnover(Strategy.RECREATE, 2, 2, EntryReplicas(), EntryReplicas(), 100.0, others=1)
    assert (shift(gone).new, shift(gone).phase) == (0, Phase.DRAINING)
    assert shift(replace(gone, others=0)).new == 2
    paused = replace(gone, old=EntryReplicas(ready=2), paused=True)
    assert shift(paused).old == 2
