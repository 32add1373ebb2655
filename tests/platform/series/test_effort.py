"""What series cost: 1,000 deployments of which 100 are awake, the only ones that are written of."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaUsage
from hotplate.platform.series.columns import columns
from hotplate.platform.series.levels import MEDIUM, grid
from hotplate.platform.series.points import Point
from hotplate.platform.series.reading import read, tracks
from hotplate.platform.series.recorder import SeriesRecorder, Subject
from hotplate.platform.series.track import Seen, Use
from hotplate.platform.series.writing import put
from hotplate.platform.store.database import Database
from hotplate.platform.store.deployment_ports import count_up
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.parts import Store
from hotplate.serving.gateway.protocol.route_counts import RouteCounts
from tests.platform.series.test_writing import T, bento, deployed

ALL, AWAKE = 1000, 100
MINUTES = 4
DAY_MIN = 1440


def installation(file: Path) -> tuple[Store, list[Subject]]:
    store = Store(Database(f"sqlite:///{file}"), count_up)
    user = store.identities.ensure_user("acme", "ann", "")
    made, tenant = bento(store, user.organization.id), user.organization
    with store.database.together():
        ids = [
            store.deployments.create(user, f"d{n}", RevisionDraft(made, {"services": {}})).id
            for n in range(AWAKE)
        ]
    ids += range(max(ids) + 1, max(ids) + 1 + ALL - AWAKE)
    return store, [
        Subject(key, tenant.id, tenant.name, f"d{n}", f"acme/d{n}") for n, key in enumerate(ids)
    ]


def step(recorder: SeriesRecorder, subjects: list[Subject], rng: random.Random) -> None:
    """What happens in a step of 10 s to those that are awake."""
    for number, subject in enumerate(subjects[:AWAKE]):
        count = rng.randrange(3, 300)
        late = rng.randrange(1, 6)
        times = ((4, count - late), (5, late))
        recorder.counted(
            {
                subject.route: RouteCounts(
                    answered=count,
                    failed=rng.randrange(3),
                    waits=((0, count - late), (rng.randrange(1, 8), late)),
                    first_bytes=times,
                    answers=times,
                    busy_s={f"{number}-{n}": rng.random() for n in range(2)},
                )
            }
        )
        replicas = [
            Seen(f"{number}-{n}", "Echo", Use.READY, rng.random() < 0.5, gpus=1.0) for n in range(2)
        ]
        recorder.look(subject, replicas, 2, rng.randrange(9), rng.randrange(5))


def size_bytes(file: Path) -> int:
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.stat().st_size


@pytest.mark.sqlite
async def test_a_day_is_small_and_takes_little_of_a_core(tmp_path: Path) -> None:
    store, subjects = installation(tmp_path / "hotplate.db")
    rng = random.Random(1)

    async def used() -> Mapping[str, ReplicaUsage]:
        names = (f"{number}-{n}" for number in range(AWAKE) for n in range(2))
        return {name: ReplicaUsage(rng.random() * 1e6, rng.randrange(1 << 34)) for name in names}

    clock = [float(T)]
    recorder = SeriesRecorder(store, used, wall=lambda: clock[0])
    for subject in subjects:
        recorder.look(subject, (), 0, 0, 0)
    before_bytes, cpu_s = size_bytes(tmp_path / "hotplate.db"), 0.0
    for number in range(MINUTES * 6):
        clock[0] = T + 10.0 * (number + 1)
        step(recorder, subjects, rng)
        began_s = time.process_time()
        await recorder.end_step()
        if number % 6 == 5:
            await recorder.flush()
        cpu_s += time.process_time() - began_s
    grown_bytes = size_bytes(tmp_path / "hotplate.db") - before_bytes
    assert grown_bytes * DAY_MIN / MINUTES <= 200e6
    assert cpu_s <= 0.01 * MINUTES * 60
    assert len(store.series.between(10, 0, T * 2)) == AWAKE * MINUTES
    store.close()


def test_seven_days_are_answered_in_a_moment(store: Store) -> None:
    of, rng = deployed(store), random.Random(2)
    points: list[tuple[int, Point]] = []
    for at in range(T, T + 7 * 86_400, MEDIUM.step_s):
        times = {f"answer_s.{n}": rng.randrange(200) for n in range(3, 7)}
        spent = {"replica_s.busy": rng.random() * 60, "replica_s.idle": rng.random() * 60}
        points.append((at, {"requests": rng.randrange(999), **times, **spent, "awake": 1}))
    put(store.series, MEDIUM, {of.id: points})
    now = T + 7 * 86_400
    asked = grid(T, now, 0, now)
    began_s = time.process_time()
    blocks = read(store.series, [of.id], asked, now)
    found = columns(asked, tracks(blocks, {}, {of.id: 0.0}, asked), now)
    assert time.process_time() - began_s < 1.0
    assert None not in found["requests"]
    assert len(found["at"]) > 1600
