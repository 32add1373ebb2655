"""Services with commands, written for one port by their authors: any number of replicas of any
number of deployments on one machine, deployed by the stock client."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import aiohttp
import psutil
import pytest

from hotplate.serving.replica.variables import cloud_variables
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import until
from tests.support.services.bentos import IMAGE

pytestmark = pytest.mark.client

ANSWERS = """
import http.server, json, os, sys

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        cloud = {name: value for name, value in os.environ.items() if "DEPLOYMENT_" in name}
        who = f"{os.getpid()} of {os.readlink('/proc/self/ns/pid')}"
        body = json.dumps({"pid": who, "cloud": cloud}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

port = int(sys.argv[sys.argv.index("--port") + 1]) if "--port" in sys.argv else 8000
http.server.ThreadingHTTPServer(("0.0.0.0", port), Answers).serve_forever()
"""
SERVICE = (
    IMAGE
    + """
HERE = os.path.dirname(os.path.abspath(__file__))
ANSWERS = os.path.join(HERE, "answers.py")


@bentoml.service(image=image, workers=1, endpoints={"livez": "/"}, cmd=COMMAND)
class Program:
    pass
"""
)
COMMANDS = {
    "pages": '["python", "-m", "http.server", "8000", "--directory", HERE]',
    "ported": '["python", ANSWERS, "--port", "8000"]',
    "unsaid": '["python", ANSWERS]',
}
REPLICAS = 2
SCALING = {"scaling": {"min_replicas": REPLICAS, "max_replicas": REPLICAS}}


@pytest.fixture(params=COMMANDS)
async def programs(
    request: pytest.FixtureRequest, platform: AnyPlatform, laptop: Laptop, kitchen: str
) -> tuple[str, str]:
    """How the command is written, and its bento; kitchen: its environment is there."""
    name = request.param
    folder = laptop.project(f"{name}-v1", SERVICE.replace("COMMAND", COMMANDS[name]))
    (folder / "answers.py").write_text(ANSWERS)
    await laptop.bentoml("build", "--name", name, "--version", "v1", folder=folder)
    return name, f"{name}:v1"


async def test_replicas_of_two_deployments_that_start_together_answer_for_themselves(
    programs: tuple[str, str], platform: AnyPlatform, laptop: Laptop
) -> None:
    form, bento = programs
    names = [f"{form}-{number}" for number in (1, 2)]
    try:
        await asyncio.gather(*(laptop.deploy(each, bento, Program=SCALING) for each in names))
        for name in names:
            await until(partial(both_ready, platform, name))
        urls = [await platform.url_of(name) for name in names]
        answers = [await answers_of(f"{url}/answers.py") for url in urls]
        programs_now = programs_of(platform)
    finally:
        for name in names:
            await asyncio.shield(platform.delete(name))
    if isinstance(platform, Platform):  # where each has its own network, all have that port
        assert len(programs_now) == 2 * REPLICAS
        said = {word for each in programs_now for word in each if word.isdigit()}
        assert len(said) == (0 if form == "unsaid" else 2 * REPLICAS)
        assert "8000" not in said
    if form == "pages":
        assert answers == [{ANSWERS}] * 2
        return
    pids = [{json.loads(text)["pid"] for text in each} for each in answers]
    assert [len(each) for each in pids] == [REPLICAS] * 2
    assert not pids[0] & pids[1]
    for name, url, each in zip(names, urls, answers, strict=True):
        clouds = [json.loads(text)["cloud"] for text in each]
        assert clouds == [cloud_variables(name, "default", url)] * len(each)


async def both_ready(platform: AnyPlatform, name: str) -> bool:
    return len(await platform.replicas(name, "ready")) == REPLICAS


async def answers_of(url: str) -> set[str]:
    """What its replicas answer: several calls at once, so that each has some, and no more than
    `http.server` lets wait for a connection."""

    async def ask(http: aiohttp.ClientSession) -> str:
        async with http.get(url) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.text()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=8)) as http:
        return set(await asyncio.gather(*(ask(http) for _ in range(60))))


def arguments(pid: int) -> list[str]:
    """Of a process; none where it has ended."""
    try:
        return list(psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return []


def programs_of(platform: AnyPlatform) -> list[list[str]]:
    """What each program of the services was started with, where that can be seen."""
    there = platform.processes() if isinstance(platform, Platform) else []
    return [each for each in map(arguments, there) if is_program(each)]


def is_program(words: list[str]) -> bool:
    return "http.server" in words or any(word.endswith("answers.py") for word in words)
