"""A bento whose author is hostile, and another deployment that has something to lose."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from tests.support.end_to_end.rough_client import Bento
from tests.support.services.bentos import IMAGE
from tests.support.services.calling import call

SECRET = "the-victims-secret"

EVIL = (
    IMAGE
    + """
import json


@bentoml.service(image=image, traffic={"concurrency": 8})
class Evil:
    def __init__(self) -> None:
        exec(os.environ.get("AT_START", ""), {})

    @bentoml.api
    def run(self, code: str) -> str:
        names: dict = {"answer": None}
        exec(code, names)
        return json.dumps(names["answer"], default=str)
"""
)

VICTIM = (
    IMAGE
    + """

@bentoml.service(image=image, traffic={"concurrency": 1})
class Victim:
    @bentoml.api
    def greet(self, name: str = "you") -> str:
        return f"hello {name}"
"""
)


async def attack(url: str, code: str) -> Any:
    """What `code` has put into `answer`, run inside the hostile replica at `url`."""
    return json.loads(await call(f"{url}/run", code=textwrap.dedent(code)))


def building(bento: Bento, name: str, *commands: str, python_version: str = "3.11") -> Bento:
    """A bento that needs no package, whose author has these commands run while it is built."""
    image = {**bento.manifest["image"], "python_version": python_version}
    image |= {"python_requirements": "", "post_commands": list(commands)}
    return bento.changed(name, {"env/python/requirements.txt": ""}, image=image)
