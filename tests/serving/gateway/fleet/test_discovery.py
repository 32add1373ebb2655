"""Where gateways meet: it is found whoever else comes and goes at the same time."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hotplate.serving.gateway.fleet.discovery import (
    SECRET,
    SETTING,
    STARTING,
    register_keys,
    rendezvous,
    shared_secret,
)
from hotplate.serving.gateway.fleet.discovery import top as meeting_top
from hotplate.serving.gateway.fleet.membership import Fleet
from tests.support.patience import PATIENCE_S


@pytest.fixture
def top(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    top = tmp_path / ("a long name " * 12) / "gateways"
    monkeypatch.setenv(SETTING, str(top))
    yield meeting_top()


@contextmanager
def again_and_again(work: Callable[[], object]) -> Iterator[list[int]]:
    """Has a thread do it for the time of the block; how often it has."""
    done, turns = threading.Event(), [0]

    def go_on() -> None:
        while not done.is_set():
            work()
            turns[0] += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield turns
    finally:
        done.set()
        thread.join()


def test_who_comes_while_others_leave_finds_its_folder(top: Path) -> None:
    def come_and_leave() -> None:
        for number in range(20):
            (top / str(number)).mkdir()
        for number in range(20):
            (top / str(number)).rmdir()

    with again_and_again(come_and_leave) as turns:
        for _ in range(60):
            with rendezvous(["mine"]) as folder:
                assert folder.is_dir()
    assert turns[0] > 0


def test_who_comes_while_another_reads_its_routes_again_finds_that_one(top: Path) -> None:
    with rendezvous(["ours"]) as folder:
        other = Fleet(folder, 1.0)
        other.join()
    with again_and_again(lambda: register_keys(folder, ["ours", "more"])) as turns:
        for _ in range(60):
            with rendezvous(["ours"]) as found:
                assert found == folder
    other.leave()
    assert turns[0] > 0


def test_nobody_else_enters_it_and_it_is_not_where_everybody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
    found = meeting_top()
    assert found == tmp_path / ".local/state/hotplate/gateways"
    found.chmod(0o777)
    assert stat.S_IMODE(meeting_top().stat().st_mode) == 0o700
    found.rmdir()
    (tmp_path / "elsewhere").mkdir()
    found.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="is not a folder of this user's; remove it"):
        meeting_top()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_is_refused(top: Path) -> None:
    os.chown(top, 65534, 65534)
    with pytest.raises(PermissionError, match="not a folder of this user's"):
        meeting_top()


def test_a_lock_that_is_not_given_back_keeps_no_gateway_from_starting(
    top: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held = os.open(top / STARTING, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    with caplog.at_level(logging.WARNING), rendezvous(["mine"], start_s=0.05) as folder:
        assert folder.is_dir()
    (said,) = caplog.messages
    assert f"held for 0.05 s by process {os.getpid()}, which should only start" in said
    os.close(held)
    with rendezvous(["mine"], start_s=PATIENCE_S):  # whoever had waited keeps nothing
        pass
    assert len(caplog.messages) == 1


def test_gateways_without_a_token_have_a_secret_of_this_users(top: Path) -> None:
    with rendezvous(["one"]) as folder:
        secret = shared_secret(folder)
    with rendezvous(["two"]) as folder:
        assert shared_secret(folder) == secret
    assert len(secret) == 64
    assert stat.S_IMODE((top / SECRET).stat().st_mode) == 0o600


def test_a_gateway_of_another_version_is_found_by_the_names_of_its_files(top: Path) -> None:
    with rendezvous(["ours"]) as folder:
        (sign,) = top.glob("*.meets")
    assert sign.read_text() == folder.name
