"""The README's shell blocks are run as written, but for the ports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.ports import free_range

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
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


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {
        **kept,
        "HOME": str(tmp_path),
        "BENTOML_HOME": str(tmp_path / "bentoml"),
        "BENTOML_DO_NOT_TRACK": "True",
        "HOTPLATE_PLATFORM__PORT": str(PORT),
        "HOTPLATE_PLATFORM__DEPLOYMENT_PORTS": f"{DEPLOYMENT_PORT}-{PORT + 4}",
    }


@pytest.fixture
def platform(environ: dict[str, str]) -> Iterator[None]:
    """The block that starts the platform, running."""
    (block,) = [b for b in BLOCKS if "hotplate up" in b]
    command = next(line for line in block.splitlines() if "hotplate up" in line)
    up = subprocess.Popen(
        command.split(), cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=-2, text=True
    )
    assert up.stdout is not None
    for line in up.stdout:
        if "Then, in the folder" in line:
            break
    yield
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=PATIENCE_S)
    assert up.returncode == 0


@pytest.mark.client
@pytest.mark.usefixtures("platform")
def test_what_the_readme_types_works(environ: dict[str, str]) -> None:
    (block,) = [b for b in BLOCKS if "bentoml deploy ." in b]
    script = "set -ex\n" + block.replace("7070", str(PORT)).replace("7100", str(DEPLOYMENT_PORT))
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Hello, Ann!" in done.stdout
    assert "replica" in done.stdout
