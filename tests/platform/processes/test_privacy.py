"""The data directory and its files are their owner's only, whatever they were before."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotplate.platform import cli
from hotplate.platform.commands import status
from hotplate.platform.errors import BadSetting
from hotplate.platform.processes.data_dir import DataDir

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_what_others_could_read_they_cannot_any_more(tmp_path: Path) -> None:
    """A directory that was there before, with the files of an older version."""
    root = tmp_path / "data"
    for folder in ("logs", "run", "environments/digest"):
        (root / folder).mkdir(parents=True)
    names = ("hotplate.db", "hotplate.db-wal", "admin-token", "logs/up.log", "run/up.json")
    for name in (*names, "environments/digest/python"):
        (root / name).write_text("secret")
    outside = tmp_path / "outside"
    outside.write_text("not ours to change")
    (root / "hotplate.toml").symlink_to(outside)
    os.mkfifo(root / "pipe")

    DataDir.at(root).make_private()

    assert mode(root) == 0o700
    assert {name: mode(root / name) for name in names} == dict.fromkeys(names, 0o600)
    assert mode(root / "environments/digest/python") == 0o644, "replicas read it"
    assert mode(outside) == 0o644


@pytest.mark.usefixtures("usual_umask")
def test_every_command_makes_files_for_its_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(_: object) -> int:
        (tmp_path / "made").touch()
        return 0

    monkeypatch.setattr(status, "run", look)
    assert cli.main(["status"]) == 0
    assert mode(tmp_path / "made") == 0o600
    (tmp_path / "after").touch()
    assert mode(tmp_path / "after") == 0o644, "whoever calls it goes on as before"


@as_root
def test_a_data_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    os.chown(root, NOBODY, NOBODY)
    with pytest.raises(BadSetting, match=rf"belongs to user {NOBODY}.*choose another --data"):
        DataDir.at(root)
    assert mode(root) & 0o077, "and left as it is"


@as_root
def test_a_file_that_somebody_else_put_there_is_refused(tmp_path: Path) -> None:
    """A token that was there before we were would be theirs."""
    data = DataDir.at(tmp_path / "data")
    token = data.root / "admin-token"
    token.write_text("known to them")
    os.chown(token, NOBODY, NOBODY)
    with pytest.raises(BadSetting, match=r"admin-token belongs to user .*remove it"):
        data.make_private()


def test_a_link_in_place_of_the_folder_for_replicas_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    data = DataDir.at(tmp_path / ".hidden")
    made = data.visible_folder("engine")
    made.rmdir()
    made.parent.rmdir()
    (tmp_path / "elsewhere").mkdir()
    made.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadSetting, match="choose a --data that is not hidden"):
        data.visible_folder("engine")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_below_a_folder_that_everybody_writes_there_is_no_data_directory(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(BadSetting, match=rf"other users may write to {shared}.*chmod o-w"):
        DataDir.at(shared / "data")
    assert mode(DataDir.at(shared / "data", alone=True).root) == 0o700, "in a pod nobody else is"
    shared.chmod(0o1777)
    assert DataDir.at(shared / "data").root == shared / "data"


@as_root
def test_nor_below_one_that_another_group_writes(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    assert DataDir.at(shared / "data"), "our own group's"
    os.chown(shared, -1, NOBODY)
    with pytest.raises(BadSetting, match="other users may write to"):
        DataDir.at(shared / "data")
