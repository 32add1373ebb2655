"""A platform with something to look at: deployments that serve, sleep and fail, with requests."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from contextlib import suppress
from pathlib import Path

import aiohttp

from tests.browser.paths import SPACE
from tests.support.control_plane.cloud import MANIFEST, ApiSession
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.services.bentos import IMAGE, SLEEPY

SERVICE = (
    IMAGE
    + '''
from pathlib import Path

@bentoml.service(image=image, traffic={"concurrency": 2}, labels={"team": "search"})
class Words:
    """Says words."""

    @bentoml.api
    async def say(self, text: str = "hello", seconds: float = 0.2) -> str:
        print(f"\\x1b[32mINFO\\x1b[0m said {text!r}")
        await asyncio.sleep(seconds)
        return text.upper()

    @bentoml.api
    async def count(self, to: int = 5) -> AsyncIterator[str]:
        for number in range(to):
            yield f"{number}\\n"
            await asyncio.sleep(0.1)

    @bentoml.api
    def size(self, files: list[Path], unit: str = "bytes") -> str:
        return f"{sum(file.stat().st_size for file in files)} {unit}"

    @bentoml.task
    def render(self, pages: int = 1) -> int:
        return pages
'''
)
MODEL = """
import bentoml

with bentoml.models.create("weights:v1") as model:
    with open(model.path_of("weights.bin"), "wb") as file:
        file.write(bytes(3 << 20))
"""
BROKEN = SERVICE.replace(
    "class Words:",
    "class Words:\n    def __init__(self):\n        raise SystemExit('no weights')\n",
    1,
)


class Town:
    """The platform, and who lives in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.platform = Platform(folder / "data")
        self._callers: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Deploys, with the stock client."""
        await self.platform.start()
        self.laptop = await Laptop.at(self._folder / "laptop", self.platform)
        tag = await self.laptop.build("words", SERVICE)
        await self.laptop.bentoml("push", tag)
        await self.laptop.python(MODEL)
        await self.laptop.bentoml("models", "push", "weights:v1")
        scaling = {"scaling": {"min_replicas": 1, "max_replicas": 3}}
        await self.laptop.deploy("chat", tag, Words=scaling)
        await self._make_code_space(SPACE)
        content = {"type": "env", "items": [{"key": "API_KEY", "value": "hidden"}]}
        async with ApiSession(self.platform.url, self.platform.token) as api:
            secret = {"name": "keys", "description": "", "content": content}
            await api.call("POST", "/api/v1/org_secrets", secret)
        await self.laptop.deploy("captions", tag, Words={"scaling": SLEEPY})

    async def _make_code_space(self, name: str) -> None:
        """As `bentoml code` makes one, before it says that all files are there."""
        manifest = MANIFEST | {"dev": True, "image": {"python_version": "3.11"}}
        draft = {"version": "v1", "manifest": manifest, "build_at": "", "labels": []}
        files = [
            {"path": "service.py", "b64_encoded_content": b64encode(b"import bentoml").decode()}
        ]
        versions = f"/api/v1/bento_repositories/{name}/bentos"
        async with ApiSession(self.platform.url, self.platform.token) as api:
            await api.call("POST", "/api/v1/bento_repositories", {"name": name})
            await api.call("POST", versions, draft | {"description": ""})
            await api.call("PATCH", f"{versions}/v1/finish_upload", {"status": "success"})
            asked = {"name": name, "bento": f"{name}:v1", "dev": True}
            await api.call("POST", "/api/v2/deployments", asked)
            await api.call("POST", f"/api/v2/deployments/{name}/files", {"files": files})

    async def break_one(self) -> None:
        """One that cannot start."""
        tag = await self.laptop.build("words", BROKEN, "v2")
        await self.laptop.bentoml("push", tag)
        with suppress(AssertionError):
            await self.laptop.deploy("ocr", tag)

    async def call(self, name: str, at_once: int, seconds: float = 0.2) -> None:
        """Requests from now on."""
        url = await self.platform.url_of(name)
        for _ in range(at_once):
            self._callers.append(asyncio.create_task(self._calls(url, seconds)))

    async def _calls(self, url: str, seconds: float) -> None:
        async with aiohttp.ClientSession() as http:
            while True:
                body = {"text": "hello", "seconds": seconds}
                with suppress(aiohttp.ClientError):
                    async with http.post(f"{url}/say", json=body) as answer:
                        await answer.read()
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        """Leaves nothing."""
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)
        await self.platform.stop()
