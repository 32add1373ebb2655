"""Files of secrets in replicas that have no walls: in a folder of the machine's memory."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from hotplate.serving.replica.memory_folders import MEMORY, memory_folder, sweep_memory
from hotplate.serving.replica.secret_values import SecretValue
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import Agent, SecretsOf, runtime_of, started, workload

KEEPER = """
    import os
    import bentoml

    @bentoml.service
    class Echo:
        @bentoml.api
        def read(self) -> dict:
            path = os.path.join(os.environ["BENTOML_HOME"], "keys", "id")
            with open(path) as file:
                about = os.stat(path)
                return {"text": file.read(), "mode": about.st_mode & 0o777, "pid": os.getpid()}
"""
KEY = SecretValue("id", "the-key-itself", file="keys/id")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_replica_reads_them_and_no_disk_has_them(tmp_path: Path, workers: int) -> None:
    bento = write_bento(tmp_path / "bento", KEEPER)
    served = workload(secrets=("keys",), config={"workers": workers})
    with started(tmp_path, bento, served, secrets=SecretsOf(keys=KEY)) as replica:
        replica.get("/readyz")
        said = replica.call("read")
    assert (said["text"], said["mode"]) == ("the-key-itself", 0o400)
    directory = tmp_path / "replica-Echo-0"
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if b"the-key-itself" in path.read_bytes()]
    folder = memory_folder(directory, walled=False)
    assert folder.stat().st_mode & 0o777 == 0o700
    asyncio.run(runtime_of(tmp_path, Agent({})).keep(str(directory), ended=True))
    assert not folder.exists()


async def test_what_a_killed_platform_has_left_goes_with_the_next_start(tmp_path: Path) -> None:
    """Unless its replica is there still, adopted by that platform."""
    folders = []
    for name in ("gone", "there"):
        directory = tmp_path / name
        directory.mkdir()
        folders.append(memory_folder(directory, walled=False))
        folders[-1].mkdir(mode=0o700)
        (folders[-1] / ".of").write_text(str(directory))
    shutil.rmtree(tmp_path / "gone")
    try:
        await sweep_memory()
        assert [folder.name in os.listdir(MEMORY) for folder in folders] == [False, True]
    finally:
        shutil.rmtree(folders[1])
