"""A user of the platform that repeats what was not answered, and never what was."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from hotplate.platform.spec.deployment_config import STRATEGIES
from tests.support.control_plane.cloud import MODEL_MANIFEST, Refused, tar_of
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.patience import until
from tests.support.services import calling
from tests.support.services.bentos import SLEEPY
from tests.support.services.calling import call

DEPLOYMENTS = "/api/v2/deployments"
OUR_DEPLOYMENTS = "/api/v1/hotplate/deployments"
TWO = {"Kitchen": {"scaling": {"min_replicas": 2, "max_replicas": 2}}}
WORKERS = {"Kitchen": {"config_overrides": {"workers": 2}}}
DONE_ALREADY = (404, 409)
AGAIN_S = 0.2


@dataclass
class Wanted:
    """What the platform has promised of a deployment by its answers."""

    port: int
    turn: str = ""
    """The value of an environment variable that its latest revision has."""
    statuses: tuple[str, ...] = ("running",)


@dataclass
class RetryingUser:
    """Deploys, changes and calls; it knows what the platform has promised."""

    platform: Platform
    rough: RoughClient
    bento: str
    rng: random.Random
    wanted: dict[str, Wanted] = field(default_factory=dict)
    uploaded: list[str] = field(default_factory=list)
    turns: int = 0

    async def prepare(self) -> None:
        """The deployments that its operations need."""
        await self.deploy("steady", TWO)
        await self.deploy("elastic", {"Kitchen": {"scaling": {**SLEEPY, "max_replicas": 2}}})
        self.wanted["elastic"].statuses = ("running", "scaled-to-zero")
        await self.deploy("twins", WORKERS)
        await self.deploy("switch", {})

    async def missing(self) -> str:
        """A sentence on the first promise that the platform broke; empty if it kept all."""
        try:
            pages = await self.rough.call("GET", "/api/v1/hotplate/deployments")
        except (aiohttp.ClientError, Refused, TimeoutError) as error:
            return f"the API does not answer: {error!r}"
        found = {page["name"]: page for page in pages}
        if found.keys() != self.wanted.keys():
            return f"{sorted(found)} are deployed, not {sorted(self.wanted)}"
        for name, wanted in self.wanted.items():
            page = found[name]
            if page["status"] not in wanted.statuses:
                return f"{name} is {page['status']} ({page['reason']}), not {wanted.statuses[0]}"
            if page["serving"] != page["revision"]:
                return f"{name}: revision {page['serving']} serves, not {page['revision']}"
            detail = await self.platform.ask(name)
            turns = [env["value"] for env in detail["config"]["envs"]]
            if wanted.turn and turns != [wanted.turn]:
                return f"{name} has {turns}, not {wanted.turn}"
            draining = [r for r in detail["live"]["replicas"] if r["state"] != "ready"]
            if draining:
                return f"{name}: replica {draining[0]['id']} is {draining[0]['state']}"
        for one in self.uploaded[-1:]:
            model = await self.rough.call("GET", one)
            if model["upload_status"] != "success":
                return f"{one} is {model['upload_status']}"
        return ""

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """Asks until there is an answer. None if a lost request had been done before."""
        lost = False
        while True:
            try:
                return await self.rough.call(method, path, body)
            except (aiohttp.ClientError, TimeoutError):
                lost = True
                await asyncio.sleep(AGAIN_S)
            except Refused as refused:
                if not lost or refused.status not in DONE_ALREADY:
                    raise
                return None

    async def deploy(self, name: str, services: dict[str, Any]) -> None:
        body = {"name": name, "bento": self.bento, "services": services}
        await self.ask("POST", DEPLOYMENTS, body)
        page = await self.ask("GET", f"{DEPLOYMENTS}/{name}")
        self.wanted[name] = Wanted(int(page["urls"][0].rpartition(":")[2]))

    async def deploy_new(self) -> None:
        self.turns += 1
        await self.deploy(f"new-{self.turns}", {})
        while len(self.wanted) > 6:  # the machine is small
            await self.delete()

    async def delete(self) -> None:
        name = next((name for name in self.wanted if name.startswith("new-")), None)
        if name is None:
            await self.deploy_new()
            return
        await self.ask("DELETE", f"{DEPLOYMENTS}/{name}")
        del self.wanted[name]

    async def update(self, name: str, services: dict[str, Any]) -> None:
        self.turns += 1
        turn = str(self.turns)
        await self.ask("PUT", f"{DEPLOYMENTS}/{name}", self.body(services, turn))
        self.wanted[name].turn = turn

    async def roll_out(self) -> None:
        await self.update("steady", TWO)

    async def restart(self) -> None:
        await self.act("restart")

    async def undo(self) -> None:
        """Another revision, and back to the one before."""
        before = self.wanted["steady"].turn
        number = (await self.ask("GET", f"{OUR_DEPLOYMENTS}/steady"))["revision"]
        await self.update("steady", {"Kitchen": {**TWO["Kitchen"], **self.any_strategy()}})
        await self.act("undo", to=number)
        self.wanted["steady"].turn = before

    async def pause_and_resume(self) -> None:
        await self.update("steady", {"Kitchen": {**TWO["Kitchen"], **self.any_strategy()}})
        for action in ("pause", "resume"):
            try:
                await self.act(action)
            except Refused as refused:  # the roll-out has ended already
                if refused.status != 409:
                    raise

    async def promote(self) -> None:
        """A version beside main, which becomes main once it is ready."""
        path, turn = f"{DEPLOYMENTS}/steady", self.wanted["steady"].turn
        self.turns += 1
        version = self.body(TWO, str(self.turns)) | {"weight": 20}
        body = self.body(TWO, turn) | {"canary": {"versions": {"next": version}}}
        await self.ask("PUT", path, body)

        async def ready() -> bool:
            found = await self.ask("GET", f"{OUR_DEPLOYMENTS}/steady/rollout")
            return any(each["version"] == "next" and each["ready"] for each in found["versions"])

        await until(ready)
        await self.act("promote", version="next")
        self.wanted["steady"].turn = str(self.turns)

    async def act(self, action: str, **fields: Any) -> None:
        body = {"action": action, **fields}
        await self.ask("POST", f"{OUR_DEPLOYMENTS}/steady/rollout", body)

    def any_strategy(self) -> dict[str, str]:
        return {"deployment_strategy": self.rng.choice(STRATEGIES)}

    def body(self, services: dict[str, Any], turn: str) -> dict[str, Any]:
        envs = [{"name": "TURN", "value": turn}]
        labels = [{"key": "hotplate/ramp-s", "value": "1"}]
        return {"bento": self.bento, "services": services, "envs": envs, "labels": labels}

    async def terminate_and_update(self) -> None:
        await self.ask("POST", f"{DEPLOYMENTS}/switch/terminate")
        await self.update("switch", {})

    async def upload(self) -> None:
        """Uploads a model in three parts."""
        self.turns += 1
        about = f"name: numbers\nversion: '{self.turns}'\n"
        tar = tar_of({"model.yaml": about, "weights": self.rng.randbytes(300_000)})
        parts = [tar[:100_000], tar[100_000:200_000], tar[200_000:]]
        manifest = {**MODEL_MANIFEST, "size_bytes": len(tar)}
        while True:
            try:
                one = await self.rough.register("model", "numbers", str(self.turns), manifest)
                upload, done = await self.rough.send_parts(one, parts)
                body = {"upload_id": upload, "parts": done}
                await self.rough.call("PATCH", f"{one}/complete_multipart_upload", body)
                break
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(AGAIN_S)
            except Refused as refused:
                if refused.status != 409:
                    raise
                break
        await self.ask("PATCH", f"{one}/finish_upload", {"status": "success", "reason": ""})
        self.uploaded.append(one)

    async def scale_up(self) -> None:
        url = self.url("elastic")
        for _ in range(3):
            await asyncio.gather(*(self.cook(url, 0.4) for _ in range(2)))

    async def drain(self) -> None:
        """Scales up, and waits until the platform scales down."""
        url = self.url("elastic")
        await asyncio.gather(*(self.cook(url, 0.1) for _ in range(2)))
        await asyncio.sleep(2)

    async def cook(self, url: str, seconds: float) -> None:
        """Again where the connection was cut, or the answer is that it may have run: it does no
        harm twice. Any other refusal is an error."""
        while True:
            try:
                await call(f"{url}/cook", seconds=seconds)
                return
            except aiohttp.ClientError:
                pass
            except calling.Refused as refused:
                if refused.code != "replica_failed":
                    raise
            await asyncio.sleep(AGAIN_S)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.wanted[name].port}"

    @property
    def operations(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        return {
            "deploy": self.deploy_new,
            "upload": self.upload,
            "rollout": self.roll_out,
            "scale up": self.scale_up,
            "drain": self.drain,
            "delete": self.delete,
            "restart": self.restart,
            "undo": self.undo,
            "pause, resume": self.pause_and_resume,
            "promote": self.promote,
            "terminate, update": self.terminate_and_update,
        }
