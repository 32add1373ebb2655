"""Services in the manner of public repositories, deployed as their authors would.

`public/NAME` is such a project: a `service.py`, its requirements, and other files beside it. The
function `NAME` of a module of `answers` checks what the service answers.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.imported_later import imported_later
from tests.support.patience import PATIENCE_S
from tests.support.services.bentos import REQUIREMENTS

if TYPE_CHECKING:
    import bentoml
    import httpx
else:
    bentoml, httpx = imported_later("bentoml"), imported_later("httpx")

PUBLIC = Path(__file__).parents[2] / "scenarios" / "public"
NAMES = sorted(file.parent.name for file in PUBLIC.glob("*/service.py"))

MARKS = [
    pytest.mark.client,
    # Of what bentoml uses, when it is imported; and of its client, which leaves a folder behind.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning"),
]


@dataclass(frozen=True)
class Called:
    """A service by its URL, and two clients of it."""

    url: str
    http: httpx.Client
    bentoml: bentoml.SyncHTTPClient


Answers = Callable[[Called], None]
"""Sends all kinds of requests to a service. Raises AssertionError where an answer is wrong."""


def answers_of(module: ModuleType) -> dict[str, Answers]:
    """The functions of a module of `answers`, by the names of their services."""
    return {name: vars(module)[name] for name in NAMES if name in vars(module)}


@dataclass(frozen=True)
class PublicService:
    """A public service that is deployed."""

    name: str
    url: str
    first_answer_s: float
    """Since `bentoml deploy .` was typed."""

    def ask(self, answers: Answers) -> None:
        """Has it answer all kinds of requests. Raises AssertionError where an answer is wrong."""
        with (
            httpx.Client(base_url=self.url, timeout=PATIENCE_S) as http,
            bentoml.SyncHTTPClient(self.url, timeout=PATIENCE_S) as client,
            client._temp_dir,  # the client leaves it to the garbage collector, which warns
        ):
            answers(Called(self.url, http, client))

    def __str__(self) -> str:
        return f"{self.name:12} {self.first_answer_s:5.1f} s from `bentoml deploy .` to an answer"


def asking_each(answers: Mapping[str, Answers]) -> Callable[[str, dict[str, PublicService]], None]:
    """A test of each of these services, by the fixture `public_services`."""

    @pytest.mark.parametrize("name", answers)
    def test(name: str, public_services: dict[str, PublicService]) -> None:
        print(public_services[name])  # shown by `pytest -s`
        public_services[name].ask(answers[name])

    return test


async def deploy(name: str, platform: AnyPlatform, laptop: Laptop) -> PublicService:
    folder = _project(name, laptop)
    saves_model = folder / "save_model.py"
    if saves_model.exists():
        await laptop.python(saves_model.read_text())
    began = asyncio.get_running_loop().time()
    await laptop.bentoml("deploy", ".", "-n", name, folder=folder)
    url = await platform.url_of(name)
    async with aiohttp.ClientSession() as http, http.get(f"{url}/readyz") as answer:
        assert answer.status == 200, await answer.text()
    return PublicService(name, url, asyncio.get_running_loop().time() - began)


async def deploy_all(
    names: Iterable[str], platform: AnyPlatform, laptop: Laptop
) -> dict[str, PublicService]:
    """Deploys them side by side."""
    made = await asyncio.gather(*(deploy(name, platform, laptop) for name in names))
    return {one.name: one for one in made}


async def delete_all(names: Iterable[str], platform: AnyPlatform) -> None:
    await asyncio.gather(*(platform.delete(name) for name in names))


def _project(name: str, laptop: Laptop) -> Path:
    """A copy of the project on a laptop, with the requirements of the scenarios' environment."""
    folder = laptop.home / "projects" / name
    shutil.copytree(PUBLIC / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "requirements.txt"
    theirs = [line for line in file.read_text().split() if line not in REQUIREMENTS]
    file.write_text("\n".join([*REQUIREMENTS.values(), *theirs]))
    return folder
