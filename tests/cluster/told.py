"""What the release on the test cluster tells its admin, and waiting until it tells something."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from tests.cluster.layout import node_address
from tests.cluster.release import API_PORT, Release
from tests.support.patience import until

API = f"http://{node_address(1)}:{API_PORT}"


def asked(release: Release, path: str, method: str = "GET", body: Any = None) -> Any:
    """What the API answers its admin, below its root."""
    request = urllib.request.Request(
        f"{API}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"X-YATAI-API-TOKEN": release.token("admin"), "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def page(release: Release, name: str, part: str = "") -> Any:
    return asked(release, f"/api/v1/hotplate/deployments/{name}{part}")


def is_deployed(release: Release, name: str) -> bool:
    try:
        page(release, name)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        return False
    return True


def reasons(release: Release, name: str) -> str:
    """All sentences about a deployment, its replicas and its events."""
    seen = page(release, name)
    said = [seen["reason"], *(replica["reason"] for replica in seen["live"]["replicas"])]
    return "\n".join([*said, *(event["message"] for event in seen["events"])])


async def eventually(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    async def holds() -> bool:
        try:
            return await asyncio.to_thread(condition)
        except OSError:  # the API is away
            return False

    await until(holds, within_s)
