from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from hotplate.serving.replica.payload import make_payload


def test_the_parts_import_with_nothing_but_the_standard_library(tmp_path: Path) -> None:
    parts = make_payload(tmp_path / "parts")
    worker = "hotplate.serving.replica.inside.worker"
    code = f"import {worker}, hotplate.cache.reader as r; print(r.__file__)"
    printed = subprocess.check_output(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(parts)}, text=True
    )
    assert Path(printed.strip()) == parts / "hotplate" / "cache" / "reader.py"


def test_the_parts_import_nothing_of_ours_but_parts(tmp_path: Path) -> None:
    """What is missing is missed in a user's environment only: mypy and ruff see all of ours."""
    parts = make_payload(tmp_path)
    carried = {".".join(file.relative_to(parts).with_suffix("").parts) for file in _files(parts)}
    for file in _files(parts):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                below = {f"{node.module}.{alias.name}" for alias in node.names}
                names = below & carried or {str(node.module)}
            else:
                continue
            ours = {name for name in names if name.startswith("hotplate.")}
            assert ours <= carried, file.name


def test_the_parts_are_python_3_9(tmp_path: Path) -> None:
    files = _files(make_payload(tmp_path))
    assert len(files) > 5
    for file in files:
        ast.parse(file.read_text(), str(file), feature_version=(3, 9))


def test_one_version_is_written_once_and_nothing_else_is_left(tmp_path: Path) -> None:
    parts = make_payload(tmp_path)
    before = os.stat(parts).st_ino
    assert make_payload(tmp_path) == parts
    assert os.stat(parts).st_ino == before
    assert list(tmp_path.iterdir()) == [parts]


def test_they_are_compiled_for_the_python_that_we_run_on(tmp_path: Path) -> None:
    parts = make_payload(tmp_path)
    words = "worker.__cached__, worker.main.__code__.co_filename"
    program = f"from hotplate.serving.replica.inside import worker; print({words})"
    said = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(parts)},
        capture_output=True,
        text=True,
        check=True,
    )
    cached, source = said.stdout.split()
    assert Path(cached).is_file()
    assert Path(source) == parts / "hotplate/serving/replica/inside/worker.py"


def _files(parts: Path) -> list[Path]:
    return list(parts.rglob("*.py"))
