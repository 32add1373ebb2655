"""What the terminal of `hotplate up` shows to the person who looks at it."""

from __future__ import annotations

import re

import pytest

from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import until

pytestmark = [pytest.mark.client, pytest.mark.one_machine("it is about hotplate up")]

SLEEPY = {"scaling": {"min_replicas": 0, "policy": {"scale_down_stabilization_window": 1}}}
LIFE = (
    r"revision 1 is deployed, with bento \S+",
    r"service 'Kitchen' is scaled from 1 to 0 replicas: .+",
    r"it is deleted, and its replicas are stopped",
    r"nothing is left of it, as it was deleted",
)
STARTED = (
    r"replica \S+ is ready, [\d.]+ s after it was requested",
    r"it is running: 1 replica ready",
)


async def test_the_terminal_says_what_becomes_of_a_deployment_in_sentences(
    platform: Platform, laptop: Laptop, kitchen: str
) -> None:
    def lines() -> list[str]:
        pattern = r"\d\d:\d\d:\d\d  watched: (.+)"
        return re.findall(pattern, platform.log.read_text())

    async def said(*patterns: str) -> bool:
        shown = iter(lines())
        return all(any(re.fullmatch(pattern, line) for line in shown) for pattern in patterns)

    async with deployed(platform, laptop, kitchen, "watched", Kitchen=SLEEPY):
        await until(lambda: said(LIFE[0], *STARTED, LIFE[1]))
    await until(lambda: said(*LIFE))
    assert "hotplate.controller" in (platform.data / "logs" / "control-plane.log").read_text()
    assert not re.search(r"hotplate\.[a-z-]+:| → ", platform.log.read_text())
