"""What is written of points: once a minute, in longer steps after a quarter of an hour, no more
than may be kept."""

from __future__ import annotations

import pytest
from sqlalchemy import event

from hotplate.platform.series.blocks import decoded
from hotplate.platform.series.columns import columns
from hotplate.platform.series.levels import COARSE, FINE, LEVELS, MEDIUM, grid
from hotplate.platform.series.points import Point
from hotplate.platform.series.reading import read, tracks
from hotplate.platform.series.writing import SeriesWriter, Unwritten
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.costs import Consumed
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment, Kind
from tests.support.control_plane.controller_world import MANIFEST

T = 1_800_000_000  # a quarter of an hour begins, and a day's 8 hours have gone


def deployed(store: Store, name: str = "echo") -> Deployment:
    user = store.identities.ensure_user("acme", "ann", "")
    made = bento(store, user.organization.id)
    return store.deployments.create(user, name, RevisionDraft(made, {"services": {}}))


def bento(store: Store, organization_id: int) -> int:
    store.artifacts.ensure_repository(organization_id, Kind.BENTO, "echo")
    draft = ArtifactDraft(version="v1", manifest=MANIFEST)
    made = store.artifacts.create(organization_id, Kind.BENTO, "echo", draft)
    return store.uploads.finish(made.id, "f" * 64, 1).id


def point(**more: float) -> Point:
    return {"requests": 1, "replica_s.busy": 2.5, "awake": 1, "seen_s": 10.0, **more}


def minute(of: Deployment, at: int, **more: float) -> Unwritten:
    unwritten = Unwritten()
    for step in range(at, at + 60, FINE.step_s):
        unwritten.add(step, of.id, of.organization.id, of.name, point(**more))
    return unwritten


def requests(store: Store, of: Deployment, step_s: int, since: int, until: int) -> list[object]:
    asked = grid(since, until, step_s, until)
    blocks = read(store.series, [of.id], asked, until)
    return list(columns(asked, tracks(blocks, {}, {of.id: 0.0}, asked), until)["requests"])


def test_a_minute_of_all_is_one_transaction(store: Store) -> None:
    of, other = deployed(store), deployed(store, "other")
    writer, unwritten = SeriesWriter(store), minute(of, T)
    for step in range(T, T + 60, FINE.step_s):
        unwritten.add(step, other.id, other.organization.id, other.name, point(requests=9))
    commits: list[object] = []
    with store.database.session() as session:
        engine = session.get_bind().engine
    event.listen(engine, "commit", commits.append)
    writer.write(unwritten, T + 60.5)
    assert len(commits) == 1
    (block,) = store.series.between(10, T, T + 60, [of.id])
    assert decoded(T, block.points) == {T + at: point() for at in range(0, 60, 10)}
    (whole,) = store.organization_series.between(10, T, T + 60)
    assert decoded(T, whole.points)[T]["requests"] == 10
    assert requests(store, of, 10, T, T + 60) == [1] * 6
    assert requests(store, of, 30, T, T + 60) == [3, 3]


def test_a_minute_that_comes_in_two_parts_is_one(store: Store) -> None:
    of, writer = deployed(store), SeriesWriter(store)
    first, second = Unwritten(), Unwritten()
    for step in (T, T + 10):
        first.add(step, of.id, of.organization.id, of.name, point())
    for step in (T + 10, T + 20):  # as when the control plane was started anew within a step
        second.add(step, of.id, of.organization.id, of.name, point())
    writer.write(first, T + 15)
    SeriesWriter(store).write(second, T + 60)
    assert requests(store, of, 10, T, T + 60) == [1, 2, 1, None, None, None]
    (cost,) = store.costs.between(0, T + 60)
    assert (cost.taken.requests, cost.taken.replica_busy_s) == (4, 10.0)


def test_longer_steps_are_made_when_a_quarter_of_an_hour_is_over(store: Store) -> None:
    of, writer = deployed(store), SeriesWriter(store)
    for number in range(16):
        writer.write(minute(of, T + 60 * number), T + 60 * number + 60.5)
    (medium,) = store.series.between(MEDIUM.step_s, 0, T * 2)
    assert medium.at == T
    assert [p["requests"] for p in decoded(T, medium.points).values()] == [6] * 15
    (coarse,) = store.series.between(COARSE.step_s, 0, T * 2)
    assert coarse.at == T - T % COARSE.block_s
    (whole,) = decoded(coarse.at, coarse.points).items()
    assert (whole[0], whole[1]["requests"], whole[1]["replica_s.busy"]) == (T, 90, 225.0)
    now = T + 960
    assert requests(store, of, 60, T, now) == [6] * 16, "the newest are made from the finest"
    assert requests(store, of, 900, T, now) == [90, 6]


def test_what_was_not_made_in_its_time_is_made_later(store: Store) -> None:
    of = deployed(store)
    for number in range(3):
        SeriesWriter(store).write(minute(of, T + 60 * number), T + 60 * number + 60.5)
    later = T + 20 * 3600  # the control plane was away
    SeriesWriter(store).write(minute(of, later), later + 60.5)
    assert len(store.series.between(MEDIUM.step_s, 0, T * 2)) == 1
    assert requests(store, of, 60, T, T + 240) == [6, 6, 6, None]
    SeriesWriter(store).write(minute(of, later + 900), later + 960)
    assert [b.at for b in store.series.between(MEDIUM.step_s, 0, T * 2)] == [T, later]


def test_what_is_older_than_it_may_be_goes(store: Store) -> None:
    of = deployed(store)
    SeriesWriter(store).write(minute(of, T), T + 60)
    for level in LEVELS:
        now = T + level.kept_s + level.block_s + 1
        SeriesWriter(store).write(minute(of, now - now % 60), now)
        assert store.series.between(level.step_s, 0, T + 1, [of.id]) == []
        assert store.organization_series.between(level.step_s, 0, T + 1) == []
    assert store.costs.between(0, T * 2)[0].hour == T
    SeriesWriter(store).write(Unwritten(), T + 401 * 86_400)
    assert store.costs.between(0, T + 3600) == []


def test_a_deployment_leaves_no_series_and_an_organization_nothing(store: Store) -> None:
    of, writer = deployed(store), SeriesWriter(store)
    writer.write(minute(of, T, cost=0.5), T + 60)
    store.deployments.forget(of.id)
    writer.write(minute(of, T + 60, cost=0.5), T + 120)  # what came before it was known
    assert store.series.between(10, 0, T * 2) == []
    (cost,) = store.costs.between(T, T + 3600)
    assert (cost.organization, cost.deployment, cost.taken.cost) == ("acme", "echo", 6.0)
    assert len(store.organization_series.between(10, 0, T * 2)) == 2
    store.organizations.delete("acme", force=True)
    store.organizations.finish_deletions()
    writer.write(minute(of, T + 120), T + 180)
    assert store.organization_series.between(10, 0, T * 2) == []
    assert store.costs.between(0, T * 2) == []


def test_what_comes_before_the_answer_says_whether_it_sleeps(store: Store) -> None:
    of, writer = deployed(store), SeriesWriter(store)
    writer.write(minute(of, T), T + 60)
    assert requests(store, of, 10, T + 600, T + 630) == [None] * 3
    writer.write(minute(of, T + 60, awake=0), T + 120)
    assert requests(store, of, 10, T + 600, T + 630) == [0] * 3
    for hours in (3, 50):
        since = T + hours * 3600
        SeriesWriter(store).write(Unwritten(), since)
        assert requests(store, of, 60, since, since + 120) == [0] * 2


@pytest.mark.parametrize("cost", [None, 2.0])
def test_costs_are_added_up(cost: float | None) -> None:
    one = Consumed(requests=1, gpu_busy_s=1.5)
    other = Consumed(requests=2, standby_gpu_s=1.0, cost=cost)
    whole = Consumed(requests=3, gpu_busy_s=1.5, standby_gpu_s=1.0, cost=cost)
    assert one.plus(other) == whole
    assert other.plus(one) == whole
