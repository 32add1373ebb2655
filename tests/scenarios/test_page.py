"""The page of a deployment, by what it says: its commands and programs are run as they stand."""

from __future__ import annotations

import os
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import aiohttp
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.forks import run
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import exit_of
from tests.support.services.bentos import IMAGE

pytestmark = [pytest.mark.client, pytest.mark.usefixtures("kitchen")]

SERVICE = (
    IMAGE
    + """
from pathlib import Path

import fastapi
import numpy
from pydantic import BaseModel, Field

app = fastapi.FastAPI()


@app.get("/menu")
def menu() -> dict:
    return {"menu": "of the day"}


class Dish(BaseModel):
    name: str = Field(examples=["soup"])
    portions: int = Field(ge=2)
    hot: bool = True


@bentoml.service(image=image)
@bentoml.asgi_app(app, path="/app")
class Kitchen:
    @bentoml.api
    def cook(self, dish: Dish) -> str:
        return f"{dish.portions} of {dish.name}"

    @bentoml.api(input_spec=Dish)
    def order(self, **dish) -> str:
        return f"ordered {dish['name']}"

    @bentoml.api
    def weigh(self, amounts: numpy.ndarray, unit: str) -> str:
        return f"weighed {float(amounts.sum()):g} {unit}"

    @bentoml.api
    def read(self, recipe: Path, note: str) -> str:
        return f"read {recipe.read_text()} {note}"

    @bentoml.api
    async def sing(self, prompt: str) -> AsyncIterator[str]:
        for word in ("la", "li", "lu"):
            yield f"sung {word} "

    @bentoml.task
    def stew(self, minutes: int) -> str:
        return f"stewed {minutes}"

    @bentoml.api
    def ring(self) -> str:
        return "rung"
"""
)
ANSWERS = {  # of each method, as a regular expression
    "/cook": "2 of soup",
    "/order": "ordered soup",
    "/weigh": "weighed 2 Hello",
    "/read": "read flour Hello",
    "/sing": "sung lu",
    "/stew": "[0-9a-f]{32}",  # the task's id
    "/ring": "rung",
}


class Blocks(HTMLParser):
    """The texts of `<h3>` and `<pre class=…>`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag if tag == "h3" else dict(attrs).get("class") or "" if tag == "pre" else ""
        if self._in:
            self.found.append((self._in, ""))

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in:
            kind, text = self.found[-1]
            self.found[-1] = (kind, text + data)


async def page_of(platform: AnyPlatform, name: str) -> str:
    """As a browser gets it."""
    address = f"{platform.url}/deployments/{name}"
    async with (
        aiohttp.ClientSession(headers=platform.signed_in) as http,
        http.get(address) as answer,
    ):
        assert answer.status == 200
        return await answer.text()


async def test_what_the_page_tells_to_type_works_as_it_stands(
    platform: AnyPlatform, laptop: Laptop, tmp_path: Path
) -> None:
    folder = laptop.project("paged", SERVICE)
    said = await laptop.bentoml("deploy", ".", "-n", "paged", folder=folder)
    assert f"{platform.url}/deployments/paged" in said
    await platform.url_of("paged")  # from now on this machine knows its name
    text = await page_of(platform, "paged")
    assert "1 replica ready" in unescape(text)
    (tmp_path / "file.bin").write_text("flour")
    blocks = Blocks(text).found
    titles = [block for kind, block in blocks if kind == "h3"]
    assert sorted(titles) == sorted(ANSWERS)
    environ = {**os.environ, "BENTOML_DO_NOT_TRACK": "True"}
    title = ""
    for kind, block in blocks:
        if kind == "h3":
            title = block
            continue
        if kind == "python":
            status, said = await run(["-c"], environ, tmp_path, block)
        else:
            status, said = await exit_of(["/bin/sh", "-c", block], environ, tmp_path)
        assert status == 0, said
        wanted = "of the day" if kind == "mounted" else ANSWERS[title]
        assert re.search(wanted, said), (block, said)
    await platform.delete("paged")
