"""`hotplate control-plane`: what it says of flags, files and a cluster that are not there."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hotplate.platform.cli import main
from tests.support.ports import free_port

SETTINGS = """
[cluster]
url = "https://*.models.example.com"
runtimes = [{python = "3.11", image = "hotplate-runtime:1"}]
"""
TOKEN = "a-token-of-one-word"
WITHOUT_PACKAGE = """
import sys
sys.modules["kubernetes"] = None
from hotplate.platform.program import main
sys.exit(main())
"""
PROGRAM = "import sys; from hotplate.platform.program import main; sys.exit(main())"

NEEDED = "needs the package 'kubernetes', which make test-kubernetes installs"


class Folder:
    """What a pod has of its own."""

    def __init__(self, root: Path) -> None:
        self.data, self.tokens, self.settings = root / "data", root / "tokens", root / "a.toml"
        self.settings.write_text(SETTINGS)
        self.tokens.mkdir()
        for name in ("admin-token", "cluster-token"):
            (self.tokens / name).write_text(f"{TOKEN}\n")

    def words(self, *more: str) -> list[str]:
        given = ["--data", str(self.data), "--settings", str(self.settings)]
        return ["control-plane", "--port", str(free_port()), *given, *more]

    def on_a_cluster(self, *more: str) -> list[str]:
        return self.words("--engine", "kubernetes", "--tokens", str(self.tokens), *more)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 1
    said = capsys.readouterr().err
    assert said.startswith("hotplate: ") and said.count("\n") == 1
    return said


def test_each_flag_that_does_not_fit_is_named(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (folder.words(), "--agent is missing: give the URL of this node's agent"),
        (
            folder.on_a_cluster("--agent", "http://127.0.0.1:1"),
            "--agent cannot be used with --engine kubernetes",
        ),
        (
            folder.words("--agent", "http://127.0.0.1:1", "--tokens", str(folder.tokens)),
            "--tokens is for --engine kubernetes",
        ),
    ):
        assert said in refused(words, capsys)


@pytest.mark.parametrize("name", ["admin-token", "cluster-token"])
def test_a_file_of_a_token_that_is_missing_or_empty_is_named(
    folder: Folder, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    file = folder.tokens / name
    for content in ("", "two words"):
        file.write_text(content)
        said = refused(folder.on_a_cluster(), capsys)
        assert f"--tokens {file} holds no token" in said
    file.unlink()
    said = refused(folder.on_a_cluster(), capsys)
    assert f"--tokens {file} cannot be read: No such file or directory" in said


def test_a_settings_file_that_is_missing_or_wrong_is_named(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.settings.write_text("[cluster]\nurls = 1\n")
    said = refused(folder.on_a_cluster(), capsys)
    assert f"{folder.settings}: [cluster] urls: no such setting; did you mean 'url'?" in said
    folder.settings.unlink()
    assert f"--settings {folder.settings} is no file" in refused(folder.on_a_cluster(), capsys)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (WITHOUT_PACKAGE, "The Python package 'kubernetes' is not installed: run pip install "),
        pytest.param(
            PROGRAM,
            "There is no cluster to connect to: ",
            marks=pytest.mark.skipif(find_spec("kubernetes") is None, reason=NEEDED),
        ),
    ],
    ids=["without the package", "without a cluster"],
)
def test_what_a_cluster_needs_is_missed_in_one_sentence(
    folder: Folder, tmp_path: Path, program: str, said: str
) -> None:
    environ = {name: value for name, value in os.environ.items() if "KUBE" not in name}
    environ |= {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, "-c", program, *folder.on_a_cluster()],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert said in done.stderr.splitlines()[-1]
    assert TOKEN not in done.stderr
