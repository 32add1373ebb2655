"""What imports leave in a process, found and named, with real modules in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import importlib, json, pathlib, sys
from hotplate.serving.replica.inside.forking.leftovers import Leftovers
with Leftovers([], pathlib.Path("metrics")) as leftovers:
    for name in sys.argv[1:]:
        importlib.import_module(name)
print(json.dumps([leftovers.sentence(), leftovers.descriptors()]))
"""


def left_by(folder: Path, *names: str, **sources: str) -> Any:
    """The sentence, and the descriptors, of a process that imports these modules."""
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(source))
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(folder)])},
        cwd=folder,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(said.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (
            "from threading import Event, Thread\nThread(target=Event().wait, daemon=True).start()",
            "guilty left a thread",
        ),
        ("import socket\nkept = socket.socket()", "guilty left socket:["),
        ("import os\nkept = os.pipe()", "guilty left pipe:["),
        ("import select\nkept = select.epoll()", "guilty left anon_inode:[eventpoll] open as"),
        ("kept = open(__file__)", "guilty.py open as descriptor"),
        (
            "from subprocess import DEVNULL, Popen\nkept = Popen(['sleep', '9'], stdout=DEVNULL)",
            "guilty left a process",
        ),
    ],
    ids=["thread", "socket", "pipe", "epoll", "file", "process"],
)
def test_what_an_import_left_is_named(tmp_path: Path, source: str, why: str) -> None:
    more = {"guilty": source, "outer": "import guilty, wave"}
    sentence, _ = left_by(tmp_path, "outer", "json", **more)
    assert why in sentence
    assert "outer" not in sentence
    assert "wave" not in sentence


def test_imports_that_end_what_they_begin_leave_nothing(tmp_path: Path) -> None:
    harmless = """
        import os, subprocess, threading
        thread = threading.Thread(target=print)
        thread.start()
        thread.join()
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # nobody takes note of its end
        subprocess.run(["true"])
        null = open(os.devnull, "wb")
        random = open("/dev/urandom", "rb")
        os.mkdir("metrics")
        counts = open("metrics/counts", "w")
    """
    assert left_by(tmp_path, "harmless", harmless=harmless) == ["", {}]


def test_threads_that_end_with_each_fork_are_none(tmp_path: Path) -> None:
    blas = """
        import os, threading
        leave = threading.Event()
        thread = threading.Thread(target=leave.wait, daemon=True)
        thread.start()

        def end():
            leave.set()
            thread.join()

        os.register_at_fork(before=end)
    """
    assert left_by(tmp_path, "blas", blas=blas) == ["", {}]


def test_one_that_cannot_be_forked_says_so(tmp_path: Path) -> None:
    refuses = """
        import os, threading
        threading.Thread(target=threading.Event().wait, daemon=True).start()

        def refuse():
            raise OSError(11, "no more processes")

        os.fork = refuse
    """
    sentence, _ = left_by(tmp_path, "refuses", refuses=refuses)
    assert sentence == "it could not be forked: [Errno 11] no more processes"
