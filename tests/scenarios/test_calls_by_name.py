"""`bentoml.depends(deployment=…)`: a service calls another deployment by its name, with a key that
opens that deployment and nothing else."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import until
from tests.support.services.bentos import IMAGE

pytestmark = [pytest.mark.client, pytest.mark.usefixtures("unharmed", "kitchen")]

CALLED = (
    IMAGE
    + """

@bentoml.service(image=image)
class Called:
    @bentoml.api
    def answer(self, text: str, ctx: bentoml.Context) -> dict:
        return {"text": text.upper(), "authorization": ctx.request.headers.get("authorization")}
"""
)
CALLING = (
    IMAGE
    + """
import json
import urllib.error
import urllib.request


@bentoml.service(image=image)
class Calling:
    called = bentoml.depends(deployment="called")
    spare = bentoml.depends(deployment="open-one", cluster="default")

    @bentoml.api
    def pass_on(self, text: str) -> dict:
        return self.called.to_sync.answer(text=text)

    @bentoml.api
    def pass_on_spare(self, text: str) -> dict:
        return self.spare.to_sync.answer(text=text)

    @bentoml.api
    def told(self) -> dict:
        return {name: value for name, value in os.environ.items() if "BENTO_CLOUD" in name}

    @bentoml.api
    def ask(self, method: str, address: str, headers: dict) -> dict:
        key = os.environ["BENTO_CLOUD_API_KEY"]
        headers = {name: value.replace("KEY", key) for name, value in headers.items()}
        data = None if method == "GET" else b"{}"
        request = urllib.request.Request(address, data, headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return {"status": answer.status, "text": answer.read().decode()}
        except urllib.error.HTTPError as error:
            return {"status": error.code, "text": error.read().decode()}
"""
)
ASLEEP = {"scaling": {"min_replicas": 0, "max_replicas": 1}}
AS_CLIENT, AS_CALLER = {"X-YATAI-API-TOKEN": "KEY"}, {"Authorization": "Bearer KEY"}


async def post(url: str, path: str, **body: Any) -> tuple[int, Any]:
    async with ClientSession() as http, http.post(f"{url}/{path}", json=body) as answer:
        text = answer.content_type != "application/json"
        return answer.status, await (answer.text() if text else answer.json())


async def answers(url: str, method: str) -> bool:
    return (await post(url, method, text="a"))[0] == 200


async def deploy_protected(laptop: Laptop, name: str, bento: str) -> None:
    file = laptop.home / f"{name}.yaml"
    file.write_text(
        f"name: {name}\nbento: {bento}\naccess_authorization: true\n"
        "services: {Called: {scaling: {min_replicas: 0, max_replicas: 1}}}\n"
    )
    await laptop.bentoml("deploy", "-f", str(file))


async def test_one_calls_another_by_name_from_zero_and_its_key_opens_nothing_else(
    platform: AnyPlatform, laptop: Laptop
) -> None:
    called = await laptop.build("called", CALLED)
    calling = await laptop.build("calling", CALLING)
    async with deployed(platform, laptop, calling, "calling", Calling=ASLEEP) as url:
        # Nobody is there to be called: the status says so, and it goes on.
        assert "'called', which does not exist: deploy it" in await reason(platform)
        assert (await post(url, "pass_on", text="a"))[0] == 503
        printed = await platform.hotplate("logs", "calling")
        assert "The deployment 'called' cannot be called now" in printed
        await deploy_protected(laptop, "called", called)
        await deploy_protected(laptop, "private", called)
        async with deployed(platform, laptop, called, "open-one", Called=ASLEEP):

            async def nobody_missing() -> bool:
                return "it calls" not in await reason(platform)

            await until(nobody_missing)

            # One that anybody may call does not get to see the key either.
            for method in ("pass_on", "pass_on_spare"):
                await until(partial(answers, url, method))
                found = await post(url, method, text="a")
                assert found == (200, {"text": "A", "authorization": None})
        await opens_nothing_else(platform, laptop, url)
        key = (await post(url, "told"))[1]["BENTO_CLOUD_API_KEY"]
        await is_kept_nowhere(platform, laptop, key)
        assert await shown(platform, key) == 200
        await laptop.bentoml("deployment", "terminate", "calling", "--wait")
        assert await shown(platform, key) == 401

        async def refused_by_gateways() -> bool:
            return await called_with(platform, key) == 401

        await until(refused_by_gateways, 2.0)
    for name in ("called", "private"):
        await platform.delete(name)


async def reason(platform: AnyPlatform) -> str:
    answer = await platform.ask("calling")
    return str(answer["reason"])


async def opens_nothing_else(platform: AnyPlatform, laptop: Laptop, url: str) -> None:
    """What a hostile replica would try."""
    private = await platform.url_of("private")
    tries = [
        ("GET", f"{platform.url}/api/v2/deployments/called", AS_CLIENT, 200),
        ("GET", f"{platform.url}/api/v2/deployments/private", AS_CLIENT, 403),
        ("GET", f"{platform.url}/api/v2/deployments/calling", AS_CLIENT, 403),
        ("GET", f"{platform.url}/api/v2/deployments", AS_CLIENT, 403),
        ("PUT", f"{platform.url}/api/v2/deployments/called", AS_CLIENT, 403),
        ("DELETE", f"{platform.url}/api/v2/deployments/called", AS_CLIENT, 403),
        ("POST", f"{platform.url}/api/v2/deployments/called/terminate", AS_CLIENT, 403),
        ("GET", f"{platform.url}/api/v1/org_secrets", AS_CLIENT, 403),
        ("POST", f"{platform.url}/api/v1/api_tokens", AS_CLIENT, 403),
        ("GET", f"{platform.url}/api/v1/auth/current", AS_CLIENT, 403),
        ("GET", f"{platform.url}/api/v1/hotplate/deployments/called/logs", AS_CLIENT, 403),
        ("GET", f"{platform.url}/metrics", AS_CALLER, 403),
        ("POST", f"{private}/answer", AS_CALLER, 401),
    ]
    for method, address, headers, expected in tries:
        _, found = await post(url, "ask", method=method, address=address, headers=headers)
        assert found["status"] == expected, f"{method} {address}: {found}"


async def is_kept_nowhere(platform: AnyPlatform, laptop: Laptop, key: str) -> None:
    """Neither in a list, nor in a file where there are files."""
    listed = await laptop.bentoml("api-token", "list", "-o", "json")
    listed += await platform.hotplate("token")
    assert "replica" not in listed
    if not isinstance(platform, Platform):
        return
    for file in (*platform.data.rglob("*"), platform.log):
        if file.is_file() and not file.is_symlink():
            assert key.encode() not in file.read_bytes(), file


async def shown(platform: AnyPlatform, key: str) -> int:
    """What the API answers."""
    headers = {"X-YATAI-API-TOKEN": key}
    url = f"{platform.url}/api/v2/deployments/called"
    async with ClientSession(headers=headers) as http, http.get(url) as answer:
        return answer.status


async def called_with(platform: AnyPlatform, key: str) -> int:
    url = await platform.url_of("called")
    headers = {"Authorization": f"Bearer {key}"}
    async with ClientSession(headers=headers) as http, http.get(f"{url}/schema.json") as answer:
        return answer.status
