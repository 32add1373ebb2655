"""`hotplate rollout`, as a person types it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from hotplate.platform.cli import main
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController

Hotplate = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
async def hotplate(
    cloud: Cloud, controller: FakeController, capsys: pytest.CaptureFixture[str]
) -> Hotplate:
    await cloud.push_bento()
    await cloud.push_bento(version="v2")
    await cloud.deploy()
    await controller.settled()
    await cloud.call("PUT", "/api/v2/deployments/echo", {"bento": "echo:v2"})
    await controller.settled()
    capsys.readouterr()

    async def run(*words: str) -> tuple[int, str, str]:
        command = ["rollout", *words, "--endpoint", cloud.url, "--token", cloud.token]
        status = await asyncio.to_thread(main, command)
        return status, *capsys.readouterr()

    return run


async def test_it_shows_the_roll_out_and_the_history(hotplate: Hotplate) -> None:
    status, out, _ = await hotplate("echo")
    assert status == 0
    assert "strategy none: done" in out
    assert "100 %" in out
    lines = out.splitlines()
    assert any("echo:v1" in line and "ready" in line for line in lines)
    assert any("echo:v2" in line and "yes" in line for line in lines)
    _, history, _ = await hotplate("history", "echo")
    assert history.strip().splitlines()[0].split()[:3] == ["number", "created", "by"]
    assert len(history.strip().splitlines()) == 3


async def test_json_is_what_the_routes_answer(hotplate: Hotplate) -> None:
    _, out, _ = await hotplate("echo", "--json")
    assert set(json.loads(out)) == {
        "strategy",
        "phase",
        "from",
        "to",
        "reason",
        "since",
        "versions",
    }
    _, out, _ = await hotplate("history", "echo", "--json")
    assert json.loads(out)["total"] == 2


async def test_undo_and_restart_begin_a_new_revision(hotplate: Hotplate) -> None:
    status, out, _ = await hotplate("undo", "echo", "--to", "1")
    assert status == 0
    assert "3" in out.splitlines()[0]
    _, out, _ = await hotplate("restart", "echo", "--json")
    assert json.loads(out)["to"] == 4


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("pause", "echo"), "no roll-out of deployment 'echo' is under way"),
        (("resume", "echo"), "no roll-out of deployment 'echo' is under way"),
        (("abort", "echo"), "no roll-out of deployment 'echo' is under way"),
        (("promote", "echo", "next"), "has no canary"),
        (("promote", "echo"), "write hotplate rollout NAME"),
        (("undo", "nothing"), "'nothing' does not exist"),
        (("undo", "echo", "--to", "99"), "has no revision 99"),
        (("echo", "--to", "1"), "--to is for undo"),
        (("one", "two", "three", "four"), "write hotplate rollout NAME"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_a_sentence(
    hotplate: Hotplate, words: tuple[str, ...], why: str
) -> None:
    status, _, error = await hotplate(*words)
    assert status == 1
    assert why in error
    assert len(error.strip().splitlines()) == 1
