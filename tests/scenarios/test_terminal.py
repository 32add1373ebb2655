"""What the terminal of `hotplate up` shows to the person who looks at it."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
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


async def test_who_reads_what_up_prints_is_signed_in_once_by_its_link(tmp_path: Path) -> None:
    printed = ("bash", "-c", 'exec "$@" > >(cat)', "up")  # to a program, not to a file
    platform = Platform(tmp_path / "data", launcher=printed)
    try:
        await platform.start()
        (link,) = re.findall(r"Dashboard: (\S+)  \(signs you in, once\)", platform.log.read_text())
        assert link.startswith(f"{platform.url}/login?link=")
        for logged in (platform.data / "logs").iterdir():
            assert link.partition("=")[2] not in logged.read_text(), logged
        async with aiohttp.ClientSession(
            headers={"Origin": platform.url}, cookie_jar=aiohttp.CookieJar(unsafe=True)
        ) as browser:
            async with browser.get(link) as page:
                assert "<button" in await page.text(), "to fetch it ahead uses it up for nobody"
            form = {"link": link.partition("=")[2]}
            for status in (303, 401):
                async with browser.post(
                    f"{platform.url}/login", data=form, allow_redirects=False
                ) as answer:
                    assert answer.status == status
            async with browser.get(f"{platform.url}/api/v1/auth/current") as answer:
                assert (await answer.json())["name"] == "admin"
        assert await platform.stop() == 0
    finally:
        platform.destroy()


async def test_a_file_that_stays_has_no_link(platform: Platform) -> None:
    assert f"Dashboard: {platform.url}/\n" in platform.log.read_text()
    assert "link=" not in platform.log.read_text()
