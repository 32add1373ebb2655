"""Folders that killed agents leave behind: what is swept, and what is somebody's."""

from __future__ import annotations

import os
import select
import signal
import threading
from pathlib import Path

import pytest

from hotplate.cache.file_view import view_folders
from hotplate.cache.file_view.mounting import mounted_at
from hotplate.cache.origins.blob_source import FsspecOrigin
from tests.support.cache.fakes import AgentProcess, OriginServer, PacedOrigin, publish
from tests.support.patience import PATIENCE_S

DEAD, LIVE, FULL = "0123456789abcdef", "fedcba9876543210", "00000000000000ff"
KILLS = 5


def test_folders_that_no_process_holds_are_swept_and_all_others_stay(tmp_path: Path) -> None:
    for name in (DEAD, FULL, "somebody-elses"):
        (tmp_path / name).mkdir()
    (tmp_path / FULL / "file").write_text("kept")
    (tmp_path / "00000000000000aa").symlink_to(tmp_path / "somebody-elses")
    held = view_folders.hold(tmp_path / LIVE)
    view_folders.sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["00000000000000aa", FULL, LIVE, "somebody-elses"]
    os.close(held)
    view_folders.sweep(tmp_path)
    assert not (tmp_path / LIVE).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_another_users_folder_is_not_swept(tmp_path: Path) -> None:
    (tmp_path / DEAD).mkdir()
    os.chown(tmp_path / DEAD, 12345, 12345)
    view_folders.sweep(tmp_path)
    assert (tmp_path / DEAD).exists()


def test_where_there_are_no_views_there_is_nothing_to_sweep(tmp_path: Path) -> None:
    view_folders.sweep(tmp_path / "absent")


def test_what_is_held_is_there_however_many_sweep_meanwhile(tmp_path: Path) -> None:
    over = threading.Event()

    def sweep() -> None:
        while not over.is_set():
            view_folders.sweep(tmp_path)

    sweeping = [threading.Thread(target=sweep) for _ in range(2)]
    for one in sweeping:
        one.start()
    try:
        for number in range(200):
            folder = tmp_path / f"{number:016x}"
            held = view_folders.hold(folder)
            assert folder.is_dir()
            os.close(held)
    finally:
        over.set()
        for one in sweeping:
            one.join()


def test_the_next_agent_sweeps_the_leftovers_of_a_killed_one(tmp_path: Path) -> None:
    publish(tmp_path / "store", {"config.json": b"{}"})
    server = OriginServer(tmp_path / "store", PacedOrigin(FsspecOrigin(f"file://{tmp_path}/store")))
    mounts = {name: view_folders.default_mount(tmp_path / name) for name in ("killed", "next")}

    def is_left() -> bool:
        with AgentProcess(tmp_path / "killed", server.url, mount=mounts["killed"]) as killed:
            if not _mounted(mounts["killed"]):
                pytest.skip("no file view can be mounted here")
            os.kill(killed.process.pid, signal.SIGSTOP)  # or it would start another daemon
            _kill_child(killed.process.pid)
            killed.kill()
        return _mounted(mounts["killed"])

    try:
        # An agent of another test that starts just now sweeps it too, since it looks everywhere.
        assert any(is_left() for _ in range(KILLS)), "nobody was there to unmount it"
        with AgentProcess(tmp_path / "next", server.url, mount=mounts["next"]) as after:
            assert _mounted(mounts["next"])
            assert not mounts["killed"].exists()
            assert after.terminate() == 0
        assert not mounts["next"].exists()
    finally:
        server.close()


def _mounted(folder: Path) -> bool:
    return bool(mounted_at(folder))


def _kill_child(pid: int) -> None:
    """Returns once the process's only child has ended."""
    child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
    ended = os.pidfd_open(child)
    try:
        os.kill(child, signal.SIGKILL)
        select.select([ended], [], [], PATIENCE_S)
    finally:
        os.close(ended)
