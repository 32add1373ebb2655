"""`hotplate doctor`: what it says, and what it exits with."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hotplate.deploy.process.procfs import start_time_of
from hotplate.deploy.sandbox.isolation_check import CheckState
from hotplate.platform.cli import main
from hotplate.platform.commands.doctor import of_files, of_roles, of_settings
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.role_state import SUPERVISOR, RoleState
from hotplate.platform.settings import PlatformSettings


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    found = DataDir.at(tmp_path / "data")
    found.secret("admin-token")
    return found


def test_a_data_directory_is_its_users_alone(data: DataDir) -> None:
    (finding,) = of_files(data, os.getuid())
    assert finding.state is CheckState.OK
    (finding,) = of_files(DataDir.named("/nowhere/at/all"), os.getuid())
    assert (finding.state, "none yet" in finding.sentence) == (CheckState.OK, True)


@pytest.mark.parametrize(
    ("name", "mode", "said"),
    [(".", 0o755, "mode 755"), ("admin-token", 0o644, "chmod 600"), ("hotplate.db", 0o640, "640")],
)
def test_what_others_may_read_there_is_said(data: DataDir, name: str, mode: int, said: str) -> None:
    path = data.root / name
    path.touch() if not path.exists() else None
    path.chmod(mode)
    (finding,) = of_files(data, os.getuid())
    assert finding.state is CheckState.MISSING
    assert str(path) in finding.sentence and said in finding.sentence


def test_a_data_directory_of_another_user_is_for_that_one_to_inspect(data: DataDir) -> None:
    (finding,) = of_files(data, os.getuid() + 1)
    assert f"belongs to user {os.getuid()}" in finding.sentence


def test_what_the_settings_open_is_said() -> None:
    assert {finding.state for finding in of_settings(PlatformSettings())} == {CheckState.OK}
    everywhere, trusting = of_settings(PlatformSettings(host="0.0.0.0", trust_organizations=True))
    assert (everywhere.state, trusting.state) == (CheckState.WEAK, CheckState.WEAK)
    assert "plain HTTP" in everywhere.sentence


def test_a_platform_that_runs_makes_files_for_its_own_user_only(data: DataDir) -> None:
    assert of_roles(data) == []
    us = RoleState(SUPERVISOR, os.getpid(), start_time_of(os.getpid()), (), 0.0)
    us.note(data)
    before = os.umask(0o022)
    try:
        (finding,) = of_roles(data)
        assert (finding.state, "up (022)" in finding.sentence) == (CheckState.MISSING, True)
        os.umask(0o077)
        (finding,) = of_roles(data)
        assert finding.state is CheckState.OK
    finally:
        os.umask(before)


def test_what_is_missing_is_said_and_is_the_exit_status(
    data: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    data.root.chmod(0o755)
    before = sorted(os.listdir(data.root))
    assert main(["doctor", "--data", str(data.root), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["user"]) == (False, os.geteuid())
    states = {each["name"]: each["state"] for each in said["findings"]}
    assert states["data directory"] == "missing"
    assert {"files", "processes", "calls"} <= set(states)
    assert main(["doctor", "--data", str(data.root)]) == 1
    assert "Missing: " in capsys.readouterr().out
    assert sorted(os.listdir(data.root)) == before


def test_no_data_directory_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--data", str(tmp_path / "none"), "--json"])
    assert not (tmp_path / "none").exists()
    states = {each["name"] for each in json.loads(capsys.readouterr().out)["findings"]}
    assert "files" in states


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_nothing_is_made_in_a_data_directory_of_another_user(
    data: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    os.chown(data.root, 54_321, 54_321)
    before = data.root.stat().st_mtime_ns
    assert main(["doctor", "--data", str(data.root), "--json"]) == 1
    assert data.root.stat().st_mtime_ns == before
    assert "run this as the platform's user" in capsys.readouterr().out
