"""A service that imports what it has not is told which package to add."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from hotplate.serving.replica.inside.missing_module import what_is_missing
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import started, workload


class ImportServiceError(Exception):
    """As BentoML's: raised while an ImportError is handled, and not from it."""


def failed(name: str) -> BaseException:
    try:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ImportServiceError(f'Failed to import module "service": {error}')  # noqa: B904
    except ImportServiceError as error:
        return error
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cv2", "'cv2', which its environment does not have: add opencv-python to the image's"),
        ("fitz.utils", "'fitz', which its environment does not have: add pymupdf to"),
        ("google.cloud.storage", "add the google-… package that brings it to"),
        ("llama_cpp", "add llama-cpp-python to"),
        ("no_such_thing_42.part", "add no_such_thing_42 to the image's python_packages (requ"),
        ("no_such_thing_42", ", or its file to what the bento includes if it is yours"),
        ("yaml.of_another_version", "which the version of pyyaml in its environment does not have"),
        ("rich.of_another_version", "which the version of rich in its environment does not have"),
        ("hotplate.no_such_part", "add hotplate to"),
        ("模块", "'模块', which its environment does not have: add 模块 to"),
    ],
)
def test_the_package_of_a_missing_module_is_named(tmp_path: Path, name: str, said: str) -> None:
    assert said in what_is_missing(failed(name), str(tmp_path))


def test_a_module_of_the_bentos_own_is_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src" / "kitchen_sources").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "src")
    said = what_is_missing(failed("kitchen_sources.recipes"), str(tmp_path))
    assert said.startswith("the service imports 'kitchen_sources.recipes' from its own sources")
    (tmp_path / "src" / "kitchen_sources" / "__init__.py").touch()
    importlib.invalidate_caches()
    assert what_is_missing(failed("kitchen_sources.recipes"), str(tmp_path)) == said


def test_a_missing_library_of_the_system_is_named(tmp_path: Path) -> None:
    error = ImportError("libGL.so.1: cannot open shared object file: No such file or directory")
    assert "needs the system library 'libGL.so.1'" in what_is_missing(error, str(tmp_path))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("the oven is cold"),
        ImportError("cannot import name 'x' from 'y'", name="y"),
        ImportError("Using this needs Accelerate: pip install accelerate"),
        ModuleNotFoundError("nothing is said"),
        ModuleNotFoundError("odd", name=""),
        ModuleNotFoundError("odd", name="..."),
        ModuleNotFoundError("No module named '_sqlite3'", name="_sqlite3"),
        ModuleNotFoundError("No module named 'tkinter'", name="tkinter"),
    ],
)
def test_what_says_it_better_itself_keeps_its_words(tmp_path: Path, error: Exception) -> None:
    assert what_is_missing(error, str(tmp_path)) == ""


def test_an_error_that_was_raised_while_an_import_failed_is_told_itself(tmp_path: Path) -> None:
    try:
        try:
            importlib.import_module("no_such_thing_42")
        except ImportError:
            raise ValueError("install the thing")  # noqa: B904
    except ValueError as error:
        assert what_is_missing(error, str(tmp_path)) == ""
        error.__cause__ = error.__context__
        assert "add no_such_thing_42 to" in what_is_missing(error, str(tmp_path))


@pytest.mark.parametrize("place", ["", "        "], ids=["import", "constructor"])
def test_a_replicas_log_ends_with_it(tmp_path: Path, place: str) -> None:
    source = f"""
    import bentoml
    {"" if place else "import cv2"}

    @bentoml.service
    class Echo:
        def __init__(self) -> None:
            {"import cv2" if place else ""}
            pass

        @bentoml.api
        def echo(self, text: str) -> str:
            return text
    """
    bento = write_bento(tmp_path / "bento", source)
    with started(tmp_path, bento, workload(), warm=True) as replica:
        assert replica.ended() == 1
        assert replica.log.read_text().splitlines()[-1] == (
            "The service did not start: the service imports 'cv2', which its environment does "
            "not have: add opencv-python to the image's python_packages (requirements)"
        )
