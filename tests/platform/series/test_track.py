"""What is added up of a deployment: no second of a replica twice, and none left out."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from hotplate.deploy.engine import ReplicaUsage
from hotplate.platform.series.points import Point, merged
from hotplate.platform.series.track import Seen, Track, Use
from hotplate.serving.gateway.protocol.route_counts import RouteCounts


def replica(name: str = "r1", use: Use = Use.READY, **more: object) -> Seen:
    return Seen(name, "Echo", use, **more)  # type: ignore[arg-type]


def track(now: float = 0.0) -> Track:
    return Track(began_at=1000.0, opened_at=now)


def look(track: Track, now: float, *replicas: Seen, **more: int) -> None:
    track.look(replicas, **{"wanted": len(replicas), "in_flight": 0, "queued": 0, **more}, now=now)


def closed(track: Track, now: float) -> Point:
    point = track.close(now)
    assert point is not None
    return point


def seconds(point: Point, kind: str = "replica_s") -> Sequence[float]:
    return [round(point.get(f"{kind}.{use}", 0), 6) for use in ("starting", "busy", "idle")]


def test_a_life_is_starting_then_busy_or_idle() -> None:
    one = track()
    look(one, 0.0, replica(use=Use.STARTING, gpus=2.0))
    look(one, 3.0, replica(gpus=2.0, ready_at=1003.0))
    look(one, 4.0, replica(gpus=2.0, ready_at=1003.0, is_busy=True), in_flight=1)
    look(one, 6.0, replica(gpus=2.0, ready_at=1003.0))
    point = closed(one, 10.0)
    assert seconds(point) == [3.0, 2.0, 5.0]
    assert seconds(point, "gpu_s") == [6.0, 4.0, 10.0]
    assert one.gpus() == {"idle": 2.0}
    assert (point["cold_starts"], point["in_flight"], point["wanted_s"]) == (1, 1, 10.0)
    assert point["ready_s"] == 7.0
    assert one.gpu_s == {
        ("Echo", "starting"): 6.0,
        ("Echo", "busy"): 4.0,
        ("Echo", "idle"): 10.0,
    }


def test_what_was_ready_before_is_no_cold_start_and_is_none_twice() -> None:
    one = track()
    look(one, 0.0, replica(ready_at=999.0))
    assert "cold_starts" not in closed(one, 10.0)
    for now in (11.0, 12.0):
        look(one, now, replica(ready_at=999.0), replica("r2", ready_at=1011.0))
    assert closed(one, 20.0)["cold_starts"] == 1


def test_a_gateways_word_puts_right_what_was_taken_for_busy() -> None:
    one = track()
    look(one, 0.0, replica())
    one.count(RouteCounts(busy_s={"r1": 0.5}), 2.0, is_entry=True)
    look(one, 2.0, replica(is_busy=True))  # since then it is busy, as far as anybody knows
    one.count(RouteCounts(busy_s={"r1": 0.25}), 4.0, is_entry=True)  # but it was only for so long
    look(one, 4.0, replica())
    assert seconds(closed(one, 10.0)) == [0.0, 0.75, 9.25]


def test_a_request_that_lasts_is_busy_in_each_step_and_counted_once() -> None:
    one = track()
    look(one, 0.0, replica(is_busy=True), in_flight=1)
    first, second = closed(one, 10.0), closed(one, 20.0)
    one.count(RouteCounts(answered=1, busy_s={"r1": 25.0}), 25.0, is_entry=True)
    look(one, 25.0, replica())
    third = closed(one, 30.0)
    assert [seconds(point)[1] for point in (first, second, third)] == [10.0, 10.0, 5.0]
    assert [point.get("requests", 0) for point in (first, second, third)] == [0, 0, 1]
    assert third["in_flight"] == 1


@pytest.mark.parametrize("seed", range(5))
def test_the_parts_add_up_to_what_replicas_lived(seed: int) -> None:
    rng, one, now = random.Random(seed), track(), 0.0
    lives: dict[str, Use] = {}
    lived_s, points = 0.0, []
    for number in range(400):
        lasted_s = rng.random()
        now += lasted_s
        lived_s += lasted_s * len(lives)
        if rng.random() < 0.2:
            lives[f"r{number}"] = Use.STARTING
        for name in [name for name in lives if rng.random() < 0.1]:
            lives[name] = rng.choice(list(Use))
        for name in [name for name in lives if rng.random() < 0.03]:
            lives.pop(name)
        busy_s = {name: rng.random() * 2 for name in lives if rng.random() < 0.5}
        one.count(RouteCounts(busy_s=busy_s), now, is_entry=False)
        look(one, now, *(replica(n, use, is_busy=rng.random() < 0.5) for n, use in lives.items()))
        if rng.random() < 0.1:
            points += [one.close(now)]
    points += [one.close(now)]
    whole = merged(point for point in points if point is not None)
    assert sum(seconds(whole)) == pytest.approx(lived_s)
    assert min(whole.get(f"replica_s.{use}", 0) for use in ("busy", "idle", "starting")) >= 0


def test_requests_are_answered_or_failed_or_refused_and_rates_are_of_ten_seconds() -> None:
    one = track()
    refusals = {"share_full": 3, "replica_failed": 1, "unauthorized": 1}
    counts = RouteCounts(answered=10, failed=2, refusals=refusals, waits=((0, 9), (12, 1)))
    one.count(counts, 5.0, is_entry=True)
    one.count(counts, 5.0, is_entry=False)
    assert one.rates(6.0) == (1.5, 0.3)
    point = closed(one, 10.0)
    assert (point["requests"], point["errors"], point["refused"]) == (15, 3, 4)
    assert (point["wait_s.0"], point["wait_s.12"]) == (9, 1)
    assert one.rates(15.0) == (0.0, 0.0)


def test_counts_are_dropped_though_nobody_asks_for_rates() -> None:
    one, sizes = track(), []
    for number in range(5_000):
        one.count(RouteCounts(answered=1), 100.0 + number / 5, is_entry=True)
        if number % 1_000 == 999:
            closed(one, 100.0 + number / 5)
            sizes.append(len(repr(one)))
    assert max(sizes) < 1.1 * min(sizes)


def test_it_sleeps_once_it_has_said_so() -> None:
    one = track()
    assert not one.is_awake
    assert one.close(10.0) is None
    one.wake(10.0)
    look(one, 12.0, replica(use=Use.STARTING))
    assert closed(one, 20.0)["awake"] == 1
    look(one, 21.0)
    assert one.is_awake, "of this step there is something to tell"
    assert closed(one, 30.0)["awake"] == 0
    assert not one.is_awake
    assert one.close(40.0) is None
    one.count(RouteCounts(refusals={"route_refused": 1}), 41.0, is_entry=True)
    assert closed(one, 50.0) | {"awake": 0} == {
        "requests": 1,
        "refused": 1,
        "seen_s": 10.0,
        "awake": 0,
    }


def test_the_step_that_goes_on_is_told_as_far_as_it_has_come() -> None:
    one = track()
    look(one, 0.0, replica(is_busy=True, gpus=1.0), queued=2)
    point = one.so_far(4.0)
    assert point is not None
    assert (seconds(point), seconds(point, "gpu_s")) == ([0.0, 4.0, 0.0], [0.0, 4.0, 0.0])
    assert (point["queued"], point["seen_s"]) == (2, 4.0)
    assert seconds(closed(one, 10.0)) == [0.0, 10.0, 0.0], "it was only told"


def test_what_is_not_known_of_use_is_not_zero() -> None:
    one = track()
    look(one, 0.0, replica(gpus=2.0))
    one.use({})
    assert "cpu_s" not in closed(one, 10.0)
    one.use({"r1": ReplicaUsage(cpu_s=7.0, memory_bytes=100, gpu_share=0.5, gpu_memory_bytes=9)})
    assert closed(one, 20.0)["cpu_s"] == 0.0, "what it had used before is not of this step"
    look(one, 21.0, replica(gpus=2.0), replica("r2"))
    one.use(
        {
            "r1": ReplicaUsage(cpu_s=9.0, memory_bytes=100),
            "r2": ReplicaUsage(cpu_s=1.5, memory_bytes=50),
        }
    )
    point = closed(one, 30.0)
    assert (point["cpu_s"], point["memory_bytes"]) == (3.5, 150)
    assert "gpu_known_s" not in point


def test_only_sizes_with_a_price_cost_anything() -> None:
    one = track()
    look(one, 0.0, replica())
    assert "cost" not in closed(one, 10.0)
    look(one, 10.0, replica(), replica("r2", Use.STARTING, price_h=7.2))
    assert closed(one, 20.0)["cost"] == pytest.approx(0.02)
