"""What `hotplate doctor` finds within all walls and without; whom a platform without refuses."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hotplate.platform.store.database import Database
from hotplate.platform.store.parts import Store
from tests.security.grounds import Grounds, _launcher, taken_away
from tests.support.patience import PATIENCE_S

HOTPLATE = Path(sys.executable).with_name("hotplate")


@pytest.fixture
def home(user: int) -> Iterator[Path]:
    """Of a user, with a data directory in it and something that is nobody else's."""
    folder = Path(tempfile.mkdtemp(prefix="doctor-"))
    (folder / "data").mkdir(mode=0o700)
    (folder / "letters").write_text("dear Ann")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user)
    yield folder
    shutil.rmtree(folder)


def doctor(user: int, home: Path, **environ: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status of that user's, and the findings by their names."""
    run = subprocess.run(
        [*_launcher(user), str(HOTPLATE), "doctor", "--json", "--data", str(home / "data")],
        env={**os.environ, "HOME": str(home), **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.stderr == ""
    findings = json.loads(run.stdout)["findings"]
    return run.returncode, {finding["name"]: finding for finding in findings}


class TestTheDoctor:
    def test_finds_every_wall_up(self, user: int, home: Path) -> None:
        status, found = doctor(user, home)
        assert {name: each for name, each in found.items() if each["state"] == "missing"} == {}
        assert status == 0
        assert all(found[name]["tried"] for name in ("files", "processes", "machine", "calls"))

    def test_finds_that_there_are_none(self, user: int, home: Path) -> None:
        away = home / "away"
        away.write_text("walls")
        status, found = doctor(user, home, **taken_away(away, "walls"))
        missing = {name for name, each in found.items() if each["state"] == "missing"}
        assert status == 1
        assert {"files", "processes", "ipc", "privileges", "limits", "calls"} <= missing
        assert user != 0 or {"machine", "devices", "ids"} <= missing


class TestASecondOrganization:
    async def test_may_deploy_within_walls(self, field: Grounds) -> None:
        status, error = await deployed_by_another(field)
        assert (status, error["code"]) == (400, "invalid")  # there is no such bento

    async def test_is_refused_without(self, open_field: Grounds) -> None:
        status, error = await deployed_by_another(open_field)
        assert (status, error["code"]) == (403, "alone")
        assert "taken away by a test" in error["message"]


class TestThePlatformsStatus:
    async def test_says_that_there_are_walls(self, field: Grounds) -> None:
        assert await walls_of(field) == {"up": True, "why": ""}

    async def test_says_why_there_are_none(self, open_field: Grounds) -> None:
        assert await walls_of(open_field) == {"up": False, "why": "taken away by a test"}


async def walls_of(grounds: Grounds) -> Any:
    """What the platform says of them."""
    url = f"{grounds.platform.url}/api/v1/hotplate/platform"
    headers = {"X-YATAI-API-TOKEN": grounds.platform.token}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
        return (await answer.json())["walls"]


async def deployed_by_another(grounds: Grounds) -> tuple[int, Any]:
    """What a user of another organization is answered."""
    token = await asyncio.to_thread(_token_of_another, grounds.platform.data)
    url = f"{grounds.platform.url}/api/v2/deployments"
    headers = {"X-YATAI-API-TOKEN": token}
    body = {"name": "second", "bento": "nobody:knows"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(url, json=body) as answer,
    ):
        return answer.status, (await answer.json())["error"]


def _token_of_another(data: Path) -> str:
    store = Store(Database(f"sqlite:///{data}/hotplate.db"))
    try:
        return store.tokens.add_token(
            store.identities.ensure_user("umbrella", "bob", "bob@localhost"), "laptop"
        )
    finally:
        store.close()
