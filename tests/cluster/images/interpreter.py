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


def loads(library: Path, root: Path) -> bool:
    """Whether the interpreter in `root` finds all that a compiled library asks for."""
    done = _started(root, "-c", f"import ctypes, os; ctypes.CDLL({str(library)!r}, os.RTLD_NOW)")
    return done.returncode == 0


def _run(root: Path, *arguments: str) -> None:
    done = _started(root, *arguments)
    if done.returncode:
        words = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise TestClusterError(f"the image's Python cannot compile: {' '.join(words)}")


def _started(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    loader = next((root / "usr/lib").glob("*-linux-gnu/ld-linux-*"))
    with_libraries = [str(loader), "--library-path", str(loader.parent)]
    return subprocess.run(
        [*with_libraries, str(root / "usr/bin/python3.11"), *arguments],
        env={**_SETTINGS, "PYTHONHOME": str(root / "usr")},
        capture_output=True,
        text=True,
        check=False,
    )
