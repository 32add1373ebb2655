"""The README's shell blocks are run as written, but for the ports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.ports import free_range

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
BIN = Path(sys.executable).parent
PORT = free_range(5)
DEPLOYMENT_PORT = PORT + 1


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 180


def test_every_link_leads_to_a_file() -> None:
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.startswith("make") and "up" not in b])
def test_make_knows_what_the_readme_asks_of_it(block: str) -> None:
    subprocess.run(["make", "--dry-run", *block.split()[1:]], cwd=ROOT, check=True, stdout=-1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def environ(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {
        **kept,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(home),
        "BENTOML_HOME": str(home / "bentoml"),
        "BENTOML_DO_NOT_TRACK": "True",
        "HOTPLATE_PLATFORM__PORT": str(PORT),
        "HOTPLATE_PLATFORM__DEPLOYMENT_PORTS": f"{DEPLOYMENT_PORT}-{PORT + 4}",
    }


@pytest.fixture(scope="module")
def said(environ: dict[str, str]) -> Iterator[str]:
    """What the block that starts the platform prints; it runs meanwhile."""
    (block,) = [b for b in BLOCKS if "hotplate up" in b]
    up = subprocess.Popen(
        ["bash", "-c", f"exec {block.strip()}"],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=-2,
        text=True,
    )
    assert up.stdout is not None
    printed = []
    for line in up.stdout:
        printed.append(line)
        if "Ctrl-C stops everything" in line:
            break
    yield "".join(printed)
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=PATIENCE_S)
    assert up.returncode == 0


def typed(script: str, environ: dict[str, str], folder: Path = ROOT) -> str:
    """What a shell prints that is given these lines, none of which may fail."""
    done = subprocess.run(
        ["bash", "-c", f"set -ex\n{script}"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.client
def test_what_the_readme_types_works(said: str, environ: dict[str, str]) -> None:
    (block,) = [b for b in BLOCKS if "bentoml deploy ." in b]
    script = block.replace("7070", str(PORT)).replace("7100", str(DEPLOYMENT_PORT))
    printed = typed(script, environ)
    assert "Hello, Ann!" in printed
    assert "Hello, Bob!" in printed
    assert "replica" in printed


@pytest.mark.client
def test_the_line_to_log_in_with_works_and_names_no_secret(
    said: str, environ: dict[str, str], home: Path
) -> None:
    token = (home / "hotplate" / "admin-token").read_text().strip()
    assert token not in said
    (line,) = [line for line in said.splitlines() if "cloud login" in line]
    assert "Logged in" in typed(line, environ, home)
    (readmes,) = [b for b in BLOCKS if "cloud login" in b]
    assert "--api-token" not in readmes + line
