"""An environment that would run in no other pod than the one that has built it is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotplate.cache.errors import BadEnvironment
from hotplate.cache.volumes.taking.built_environment import HOME, check
from hotplate.cache.volumes.taking.foreign_tree import ForeignTree, TreeLimits

PYTHON = "/usr/bin/python3.11"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "env"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(PYTHON)
    (folder / "bin" / "python3").symlink_to("python")
    return folder


def look(root: Path, interpreter: str = PYTHON) -> None:
    with ForeignTree(root, HOME, os.getuid(), TreeLimits()) as tree:
        check(tree, interpreter)


def test_an_environment_as_uv_makes_it_is_fine(tmp_path: Path) -> None:
    from uv import find_uv_bin

    folder = tmp_path / "env"
    subprocess.run(
        [find_uv_bin(), "venv", "--relocatable", "--python", sys.executable, folder],
        check=True,
        capture_output=True,
        env={**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache")},
    )
    look(folder, os.readlink(folder / "bin" / "python"))


@pytest.mark.parametrize(
    "python", [PYTHON, "/usr/local/bin/python3.12", "/usr/bin/python3", "/usr/local/bin/python3"]
)
def test_without_a_word_which_it_is_the_interpreter_has_a_usual_name(
    root: Path, python: str
) -> None:
    (root / "bin" / "python").unlink()
    (root / "bin" / "python").symlink_to(python)
    look(root, "")


@pytest.mark.parametrize("interpreter", [PYTHON, ""])
@pytest.mark.parametrize("python", ["/bin/sh", "python3.9", "/usr/bin/../../etc/x", None])
def test_another_python_is_refused(root: Path, python: str | None, interpreter: str) -> None:
    (root / "bin" / "python").unlink()
    if python is None:
        (root / "bin" / "python").write_bytes(b"\x7fELF")
    else:
        (root / "bin" / "python").symlink_to(python)
    with pytest.raises(BadEnvironment, match="has put another bin/python into its environment"):
        look(root, interpreter)


def test_an_environment_without_one_is_refused(root: Path) -> None:
    (root / "bin" / "python").unlink()
    with pytest.raises(BadEnvironment, match=f"than the link to {PYTHON}; leave the one there"):
        look(root)


def test_a_link_that_leads_out_is_refused(root: Path) -> None:
    (root / "lib").symlink_to("/usr/lib")
    with pytest.raises(BadEnvironment, match="the link 'lib' leads to '/usr/lib'"):
        look(root)


@pytest.mark.parametrize(
    "first",
    [
        b"#!/hotplate/env/bin/python",
        b'#!/bin/sh\n\'\'\'exec\' "$(dirname -- "$(realpath -- "$0")")"/\'python\' "$0" "$@"',
        b"#!/usr/bin/env python",
        b"#!/home/dev/bin/perl",
        b"#! /usr/bin/python3.11 -I",
        b"#!",
        b"",
        b"\x7fELF\xff\xfe",
        b"#!python",
        b"#!/scratchpad/x",
        b"# /scratch/bin/python",
    ],
)
def test_scripts_run_in_every_pod_or_in_none(root: Path, first: bytes) -> None:
    (root / "bin" / "tool").write_bytes(first + b"\nprint(1)\n")
    look(root)


@pytest.mark.parametrize(
    "program", ["/scratch/venv/bin/python", "/tmp/x", "/scratch", "/dev/shm/py"]
)
def test_a_script_that_only_its_own_pod_can_run_is_refused(root: Path, program: str) -> None:
    (root / "bin" / "tool").write_bytes(b"#! " + program.encode() + b" -I\nprint(1)\n")
    with pytest.raises(BadEnvironment, match=f"first line names '{program}'; have the bento's"):
        look(root)
