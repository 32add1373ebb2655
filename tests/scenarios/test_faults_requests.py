"""Requests that cannot be carried out: one sentence each, and nothing is lost or left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenarios.calling import call
from tests.scenarios.laptop import Laptop, deployed
from tests.scenarios.platform_process import Platform
from tests.scenarios.rough_client import RoughClient

pytestmark = [pytest.mark.client, pytest.mark.timeout(60)]


@pytest.fixture
async def rough(platform: Platform) -> AsyncIterator[RoughClient]:
    async with RoughClient(platform) as client:
        yield client


async def test_a_wrong_token_is_told_at_login_and_later(platform: Platform, tmp_path: Path) -> None:
    other = Laptop(tmp_path)
    where = ("cloud", "login", "--endpoint", platform.url, "--api-token")
    said = await other.bentoml(*where, "wrong", fails=True)
    assert "Bad credentials" in said

    await other.login(platform)
    context = tmp_path / ".yatai.yaml"
    context.write_text(context.read_text().replace(platform.token, "revoked"))
    said = await other.bentoml("deployment", "list", fails=True)
    assert "bentoml cloud login" in said
    assert "Traceback" not in said


UNKNOWN = {
    "deployment get nope": "deployment 'nope': there is none",
    "deployment update nope --scaling-max 3": "deployment 'nope': there is none",
    "deployment terminate nope": "deployment 'nope': there is none",
    "deployment delete nope": "deployment 'nope': there is none",
    "deploy nope:v1 -n x": "nope:v1 is not found",
    "models pull nope:1": "model 'nope:1': there is none",
    "pull nope:1": '"nope:1" not found',
    "deploy kitchen:v1 -n x --instance-type cpux.1": "no 'cpux.1'; did you mean 'cpu.1'?",
    "deploy kitchen:v1 -n Not_A_Name": "'Not_A_Name' is no deployment name",
    "deploy kitchen:v1 -n x --scaling-min 3 --scaling-max 1": "min scaling values must be less",
}


async def test_unknown_names_are_named_by_the_client(laptop: Laptop, kitchen: str) -> None:
    alone = asyncio.Semaphore(2)

    async def ask(command: str) -> str:
        async with alone:
            return await laptop.bentoml(*command.split(), fails=True)

    for said, sentence in zip(
        await asyncio.gather(*map(ask, UNKNOWN)), UNKNOWN.values(), strict=True
    ):
        assert sentence in said
        assert "Traceback" not in said


