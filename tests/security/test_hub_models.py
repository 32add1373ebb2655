"""What a bento's author gets by naming a model that stays at a hub."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from tests.security.grounds import Grounds, service
from tests.support.cache.hub import COMMIT, Hub
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import PATIENCE_S

PLANTED = b"written by the author of a bento"


def naming(bento: Bento, revision: str, endpoint: str) -> Bento:
    """A bento of such a model, of which its registration says nothing."""
    about = {"model_id": "org/name", "revision": revision, "endpoint": endpoint}
    model = {"tag": "hf:abc", "registry": "huggingface", "metadata": about}
    made = bento.changed("hub", models=[model])
    return replace(made, manifest={**made.manifest, "models": []})


def hostile_hub(revision: str) -> Hub:
    hub = Hub("org/name", {"canary": PLANTED})
    info = {"sha": COMMIT, "siblings": [{"rfilename": "canary"}]}
    page = f"/api/models/org/name/revision/{quote(revision, safe='')}"
    hub.web.change(page, json.dumps(info).encode())
    return hub


async def deployed(rough: RoughClient, bento: Bento, name: str) -> None:
    (settings,) = (one["name"] for one in bento.manifest["services"])
    await rough.deploy(name, await rough.push(bento), **{settings: service()})


class TestAHubModel:
    async def test_is_at_no_path_and_at_no_hub_that_nobody_has_listed(
        self, field: Grounds, any_bento: Bento
    ) -> None:
        target = field.canary("operators/canary").parent
        os.chown(target, field.user, field.user)
        with hostile_hub(str(target)) as hub:
            async with RoughClient(field.platform) as rough:
                for number, (revision, endpoint, sentence) in enumerate(
                    (
                        (str(target), "https://huggingface.co", "is no revision of org/name"),
                        ("../../../operators", "https://huggingface.co", "is no revision of"),
                        (COMMIT, hub.url, "listed in model_endpoints"),
                        (COMMIT, "http://169.254.169.254", "listed in model_endpoints"),
                    )
                ):
                    bento = replace(naming(any_bento, revision, endpoint), version=f"v{number}")
                    about = bento.files["bento.yaml"].replace(
                        f"version: {any_bento.version}".encode(), f"version: v{number}".encode()
                    )
                    bento = replace(bento, files={**bento.files, "bento.yaml": about})
                    tag = await rough.push(bento)
                    asked = {"name": f"hub-{number}", "bento": tag, "dev": False}
                    refused = await rough.refusal("POST", "/api/v2/deployments?cluster=", asked)
                    assert (refused.status, sentence in refused.message) == (400, True), refused
            assert hub.web.requests == []
        assert (target / "canary").read_text() == "the platform's own"

    async def test_is_written_anywhere_without_these_checks(
        self, field: Grounds, any_bento: Bento
    ) -> None:
        target = field.canary("strangers/other").parent
        os.chown(target, field.user, field.user)
        with hostile_hub(str(target)) as hub, field.without("hub_checks"):
            bento = naming(any_bento, str(target), hub.url)
            async with RoughClient(field.platform) as rough:
                await deployed(rough, bento, "hub")
            await until_there(target / "canary")
            await field.platform.delete("hub")
        assert (target / "canary").read_bytes() == PLANTED


async def until_there(path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not os.path.exists(path):  # noqa: ASYNC110, ASYNC240 (nobody tells)
            await asyncio.sleep(0.1)
