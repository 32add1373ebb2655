"""Folders of replicas and standbys whose processes are hostile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hotplate.deploy.local.placement import Place
from hotplate.deploy.local.records import MOST_MOVED, Record, Records
from hotplate.deploy.process.logfile import append, tail, trim
from hotplate.deploy.sandbox import isolation as walls
from hotplate.deploy.workload import Workload, WorkloadKey

MOVES = {"metrics": "home/counts"}


@pytest.fixture
def records(tmp_path: Path) -> Records:
    made = Records(tmp_path / "engine")
    (made.standby("s") / "work" / "metrics").mkdir(parents=True)
    made.create("r")
    (made.work("r") / "home" / "counts").mkdir(parents=True)
    return made


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A folder of the platform's."""
    folder = tmp_path / "ours"
    folder.mkdir()
    (folder / "cluster-token").write_text("secret")
    return folder


def test_files_of_a_standby_go_along_with_it(records: Records) -> None:
    (records.standby("s") / "work" / "metrics" / "counter.db").write_text("1")
    records.take_along("s", "r", MOVES)
    assert (records.work("r") / "home" / "counts" / "counter.db").read_text() == "1"


def replace_source(records: Records, ours: Path) -> None:
    """In a standby: `os.rename(m, m + ".was"); os.symlink(DATA, m)`."""
    source = records.standby("s") / "work" / "metrics"
    source.rmdir()
    source.symlink_to(ours)


def replace_target(records: Records, ours: Path) -> None:
    (records.standby("s") / "work" / "metrics" / "evil").write_text("theirs")
    target = records.work("r") / "home" / "counts"
    target.rmdir()
    target.symlink_to(ours)


def replace_above_the_target(records: Records, ours: Path) -> None:
    (records.standby("s") / "work" / "metrics" / "cluster-token").write_text("theirs")
    (records.work("r") / "home" / "counts").rmdir()
    (records.work("r") / "home").rmdir()
    (ours.parent / "counts").symlink_to(ours)
    (records.work("r") / "home").symlink_to(ours.parent)


@pytest.mark.parametrize("attack", [replace_source, replace_target, replace_above_the_target])
def test_no_link_leads_what_goes_along_out_or_in(
    records: Records, ours: Path, attack: Callable[[Records, Path], None]
) -> None:
    attack(records, ours)
    records.take_along("s", "r", MOVES)
    assert [path.name for path in ours.iterdir()] == ["cluster-token"]
    assert (ours / "cluster-token").read_text() == "secret"


def test_only_some_files_go_along(records: Records) -> None:
    for number in range(MOST_MOVED + 100):
        (records.standby("s") / "work" / "metrics" / str(number)).touch()
    records.take_along("s", "r", MOVES)
    assert len(os.listdir(records.work("r") / "home" / "counts")) == MOST_MOVED


def test_what_a_replica_leaves_is_removed_whatever_it_is(records: Records, ours: Path) -> None:
    work = records.work("r")
    (work / "link").symlink_to(ours)
    os.mkfifo(work / "pipe")
    fd = os.open(work, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("deep", dir_fd=fd)
        below = os.open("deep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    records.log_path("r").write_text("its last words\n")
    assert records.empty_work("r") == work
    assert os.listdir(work) == []
    records.end("r")
    assert records.ids() == []
    log = records.log("r")
    assert log is not None
    assert tail(log, 1) == ["its last words"]
    records.end_standby("s")
    records.end_standby("s")
    assert records.standbys() == []
    assert os.listdir(ours) == ["cluster-token"]


def test_a_log_that_is_none_is_as_if_empty(tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mkfifo(log)
    assert tail(log, 5) == []
    append(log, ["line"])
    assert trim(log) == 0


def test_a_link_in_place_of_the_folder_for_temporary_files_opens_nothing(
    records: Records, ours: Path
) -> None:
    """As a step of a build may leave it for the next one, which begins in the same folder."""
    ours.chmod(0o700)
    work = records.work("r")
    (work / "tmp").symlink_to(ours)
    with pytest.raises(OSError):
        walls.furnish(work, records.log_path("r"), (), 0)
    assert ours.stat().st_mode & 0o7777 == 0o700


def test_the_folder_of_what_has_ended_is_out_of_the_way_and_then_removed(
    records: Records, tmp_path: Path
) -> None:
    (records.work("r") / "file").write_text("x")
    records.end("r")
    assert records.ids() == []
    left = [each for each in tmp_path.rglob("file") if "ended" not in each.parts]
    assert len(left) == 1
    records.clear_leavings()
    assert not left[0].exists()
    records.create("r")
    records.end("r")
    assert records.ids() == [], "an id may come again"


def record(replica: str, owner: str) -> Record:
    key = WorkloadKey(owner, "hello", 1, "Hello")
    return Record(
        id=replica,
        pid=1,
        start_time="",
        workload=Workload(key, "hello", "1", "0" * 64, owner=owner),
        place=Place(key),
        address="",
        ready_path="/readyz",
        restarts=0,
        created_at=0.0,
        spawned_at=0.0,
        ready_at=None,
        phases=(),
    )


def test_logs_of_an_organization_that_is_gone_go_and_others_stay(records: Records) -> None:
    for name, owner in (("a", "acme's"), ("b", "umbrella's"), ("none", None)):
        records.create(name)
        records.log_path(name).write_text(f"{name}'s words\n")
        if owner is not None:
            records.save(record(name, owner))
        records.end(name)
    records.ended.forget({"acme's"})
    assert [records.log(name) is not None for name in ("a", "b", "none")] == [True, False, True]
