"""Hotplate as a stranger has it: one wheel in an environment of its own, and no checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.end_to_end.platform_process import BIN, Platform, running
from tests.support.services.bentos import SLEEPY
from tests.support.services.calling import call

pytestmark = pytest.mark.one_machine("it is about the wheel")

ROOT = Path(__file__).parent.parent.parent
SOURCES = ("platform", "serving", "cache", "autoscaler", "deploy", "machine")
UV = BIN / "uv"

IMPORTS_OF_ALL = """
import json, pathlib, sys
from importlib import import_module
import hotplate

missing = {}
for root in map(pathlib.Path, hotplate.__path__):
    for file in root.rglob("*.py"):
        if "migrations" not in file.parts:  # alembic runs them
            module = ".".join(("hotplate", *file.relative_to(root).with_suffix("").parts))
            try:
                import_module(module)
            except ModuleNotFoundError as error:
                missing[module] = error.name
print(json.dumps(missing))
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--wheel", "--out-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def installed(wheel: Path) -> Path:
    """The folder of the programs of an environment with the wheel and what it asks for."""
    environment = wheel.with_name("environment")
    run(UV, "venv", "--python", sys.executable, environment)
    extra = "" if Platform.databases is None else "[postgresql]"
    run(UV, "pip", "install", "--python", environment / "bin" / "python", f"{wheel}{extra}")
    return environment / "bin"


def test_the_dashboard_is_in_the_wheel_with_the_licenses_of_others(wheel: Path) -> None:
    dashboard = "hotplate/platform/dashboard"
    names = set(zipfile.ZipFile(wheel).namelist())
    there = (ROOT / "platform" / dashboard).rglob("*")
    files = {path for path in there if path.is_file() and "__pycache__" not in path.parts}
    wanted = {path.relative_to(ROOT / "platform").as_posix() for path in files}
    assert {f"{dashboard}/vendor/preact.LICENSE", f"{dashboard}/static/start.js"} <= wanted
    assert wanted - names == set()


def run(*command: str | Path) -> str:
    """What it prints, from a folder that is no checkout."""
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_has_every_file_of_the_sources_and_nothing_else(wheel: Path) -> None:
    files = {
        (Path(folder) / name).relative_to(ROOT / source).as_posix()
        for source in SOURCES
        for folder, _, names in os.walk(ROOT / source / "hotplate", followlinks=True)
        if "__pycache__" not in Path(folder).parts
        for name in names
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    about = {name for name in names if name.startswith("hotplate-")}
    assert names - about == files
    assert {Path(name).name for name in about} == {
        *("METADATA", "WHEEL", "RECORD", "entry_points.txt", "LICENSE")
    }


def test_only_what_replicas_locust_and_kubelet_load_needs_more_than_it_asks_for(
    installed: Path,
) -> None:
    missing = json.loads(run(installed / "python", "-c", IMPORTS_OF_ALL))
    serving = "hotplate.serving"
    inside = (f"{serving}.streaming.", f"{serving}.weights", f"{serving}.replica.inside.")
    assert missing_in(missing, inside) == {"safetensors", "httpx"}
    locustfiles = ("hotplate.platform.loadtest.locustfiles.",)
    assert missing_in(missing, locustfiles) == {"gevent", "locust"}
    kubelet = ("hotplate.cache.volumes.plugin", "hotplate.cache.volumes.messages")
    assert missing_in(missing, kubelet) <= {"grpc", "google"}
    known = (*inside, *locustfiles, *kubelet)
    assert {module for module in missing if not module.startswith(known)} == set()


def missing_in(missing: dict[str, str], beginnings: tuple[str, ...]) -> set[str]:
    return {name for module, name in missing.items() if module.startswith(beginnings)}


@pytest.mark.client
async def test_the_stock_client_deploys_to_it(
    installed: Path, platform: Platform, laptop: Laptop, kitchen: str, tmp_path: Path
) -> None:
    program = installed / "hotplate"
    async with running(tmp_path / "data", environments_of=platform, program=program) as stranger:
        theirs = Laptop(laptop.home.with_name("stranger"))
        (theirs.home / "bentos").mkdir(parents=True)
        (theirs.home / "bentos" / "kitchen").symlink_to(laptop.home / "bentos" / "kitchen")
        await theirs.login(stranger)
        async with deployed(stranger, theirs, kitchen, "meal", Kitchen={"scaling": SLEEPY}) as url:
            assert await call(f"{url}/echo", text="served") == "served"
        interpreter = (Path("/proc") / str(stranger.pid("control-plane")) / "cmdline").read_bytes()
        assert interpreter.startswith(str(installed).encode())
        assert await stranger.stop() == 0
