"""`hotplate loadtest` with a deployment that sleeps, asks for a token and tells organizations
apart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.services.bentos import SLEEPY

pytestmark = pytest.mark.client

HEADER = {"key": "hotplate/organization-header", "value": "X-Org"}


async def test_a_deployment_is_woken_loaded_and_reported(
    platform: AnyPlatform, kitchen: str, rough: RoughClient, tmp_path: Path
) -> None:
    body = {
        "name": "loaded",
        "bento": kitchen,
        "services": {"Kitchen": {"scaling": SLEEPY}},
        "access_authorization": True,
        "labels": [HEADER],
    }
    try:
        await rough.call("POST", "/api/v2/deployments", body)
        await rough.settled("loaded", "running", "scaled-to-zero")
        await platform.asleep("loaded")
        await platform.url_of("loaded")  # from now on this machine knows its name
        said = await platform.hotplate("loadtest", "loaded", *platform.caller_flags, fails=True)
        assert "the service has 5 methods: choose one by --route (/block, /cook" in said
        assert await platform.replicas("loaded") == []  # nothing has woken it
        folder = tmp_path / "report"
        flags = ["--route", "/cook", "--rate", "10", "--duration", "3s", "--report", str(folder)]
        said = await platform.hotplate(
            *(
                "loadtest",
                "loaded",
                *platform.caller_flags,
                *flags,
                "--organizations",
                "acme=3,beta=1",
            ),
            *("--fail-if", "failed > 0", "refused > 0", "p95_s > 60"),
        )
        assert "# Load test of loaded: passed" in said
        report = json.loads(await asyncio.to_thread((folder / "report.json").read_text))
        assert report["answered"] == report["requests"] > 10
        assert set(report["organizations"]) == {"acme", "beta"}
        (start,) = report["cold_starts"]
        assert start["seconds"] > 0 and {"process"} <= {one["name"] for one in start["phases"]}
        assert report["latency_s"]["max"] > start["seconds"] / 2
        assert 1 in report["series"]["ready"]
        assert report["replica_s"]["starting"] > 0
    finally:
        await platform.delete("loaded")
