"""Where no cluster can run, the suite says why and is no failure; whoever wants a cluster fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.layout import REPOSITORY


def told(command: str, **variables: str) -> tuple[int, list[str]]:
    """The exit status and the lines on standard output, where no program is installed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster", command],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": "/nowhere", "KUBECONFIG": "", **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(("command", "status"), [("test", 0), ("up", 1)])
def test_one_sentence_says_what_this_machine_lacks(command: str, status: int) -> None:
    returned, (sentence,) = told(command)
    assert returned == status
    assert sentence.startswith("A cluster needs ")


def test_a_cluster_of_somebody_elses_needs_programs_that_ask_it(tmp_path: Path) -> None:
    if (REPOSITORY / ".cluster/bin/kubectl").exists():
        pytest.skip("kubectl has been built here")
    returned, (sentence,) = told("test", KUBECONFIG=str(tmp_path / "theirs"))
    assert returned == 0
    assert sentence.endswith("is asked by kubectl, which is not here; install it.")


def test_a_cluster_of_somebody_elses_needs_images_that_it_can_pull(tmp_path: Path) -> None:
    for program in ("kubectl", "helm"):
        (tmp_path / program).symlink_to("/bin/true")
    kubeconfig = str(tmp_path / "theirs")
    images = {"HOTPLATE_IMAGE": "", "HOTPLATE_RUNTIME_IMAGE": "there"}
    returned, (sentence,) = told("test", KUBECONFIG=kubeconfig, PATH=str(tmp_path), **images)
    assert returned == 0
    assert sentence.endswith("push them and set HOTPLATE_IMAGE.")
