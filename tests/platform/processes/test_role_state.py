"""What is noted of the platform's processes, and said when one ends by itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.role_process import last_words
from hotplate.platform.processes.role_state import ROLES, SUPERVISOR, RoleState, end_of, role_states


def test_a_role_that_is_started_again_counts_and_keeps_why(tmp_path: Path) -> None:
    data = DataDir.at(tmp_path)
    assert role_states(data) == []
    first = RoleState.of_new("gateway", os.getpid(), ["gateway"])
    first.note(data)
    assert RoleState.noted(data, "gateway") == first
    second = RoleState.of_new("gateway", os.getpid(), ["gateway"], first, "killed by signal 9")
    second.note(data)
    assert (second.restarts, second.last_end) == (1, "killed by signal 9")
    third = RoleState.of_new("gateway", os.getpid(), ["gateway"], second)
    assert third.restarts == 0, "that was asked for"
    assert [state.name for state in role_states(data)] == ["gateway"]
    assert second.as_json()["runs"]


def test_a_process_that_has_ended_does_not_run(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    state = RoleState.of_new("agent", child.pid, ["sleep"])
    assert state.runs
    child.kill()
    child.wait()
    assert not state.runs


def test_a_note_of_another_version_is_passed_over(tmp_path: Path) -> None:
    data = DataDir.at(tmp_path)
    data.note(SUPERVISOR, {"pid": 1, "start_time": "2", "argv": [], "shape": "new"})
    assert RoleState.noted(data, SUPERVISOR) is None


@pytest.mark.parametrize("role", ROLES)
def test_every_roles_end_says_what_it_cut_and_what_happens_next(role: str) -> None:
    said = end_of(role, "killed by signal 9")
    assert said.startswith(f"the {role} has ended: killed by signal 9; ")
    assert "interrupted" in said
    assert said.endswith("it is started again")


def test_the_last_words_of_a_role_are_its_error_whatever_frames_them(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    log.write_text("")
    assert last_words(log) == "it logged nothing"
    log.write_text("hotplate: the port is taken\n\n")
    assert last_words(log) == "the port is taken"
    log.write_text("    | OSError: no room\n    +------------------------------------\n")
    assert last_words(log) == "OSError: no room"
