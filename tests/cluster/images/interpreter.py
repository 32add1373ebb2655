"""The image's own interpreter, run on this machine by the loader and the libraries of its layer."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.errors import TestClusterError

_SETTINGS = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
"""What it imports itself is compiled like the rest; files are the same each time."""


def compile_below(folder: Path, stage: Path, root: Path) -> None:
    """Compiles what is imported from the folder, which lies in `stage`, an image's `/` or a part.

    Pods have read-only files, so what is not compiled now is compiled at each start. `root` has the
    interpreter. A time that two files share would prove nothing, so what is compiled is not
    compared with its source.
    """
    argv = ["-m", "compileall", "-q", "--invalidation-mode=unchecked-hash"]
    _run(root, *argv, "-s", str(stage), "-p", "/", str(folder))


def _run(root: Path, *arguments: str) -> None:
    loader = next((root / "usr/lib").glob("*-linux-gnu/ld-linux-*"))
    with_libraries = [str(loader), "--library-path", str(loader.parent)]
    done = subprocess.run(
        [*with_libraries, str(root / "usr/bin/python3.11"), *arguments],
        env={**_SETTINGS, "PYTHONHOME": str(root / "usr")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise TestClusterError(f"the image's Python cannot compile: {' '.join(words)}")
