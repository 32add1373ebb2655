"""An operator offers instance types of their own: the stock client lists them and uses one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform

pytestmark = [pytest.mark.client, pytest.mark.one_machine("it starts platforms of its own")]

TYPES = """
[instance_types.small]
cpus = 0.5
memory = "512MiB"
price = 0.25
[instance_types."gpu.l4.1"]
cpus = 8
memory = "32Gi"
gpus = 1
gpu_type = "L4"
price = 0.8
"""


async def test_the_operators_types_are_listed_and_deployed_on(
    platform: Platform, laptop: Laptop, kitchen: str, tmp_path: Path
) -> None:
    own = Platform(tmp_path / "data", settings=TYPES, environments_of=platform)
    try:
        await own.start()
        other = await Laptop.at(tmp_path / "laptop", own)
        (other.home / "bentos").rmdir()
        (other.home / "bentos").symlink_to(laptop.home / "bentos")
        listed = await other.bentoml("deployment", "list-instance-types", "-o", "json")
        shown = [(one["name"], one["price"]) for one in json.loads(listed)]
        assert shown == [("small", "0.25"), ("gpu.l4.1", "0.8")]
        assert "L4" in await other.bentoml("deployment", "list-instance-types")

        deploy = ("deploy", kitchen, "-n", "typed", "--instance-type")
        said = await other.bentoml(*deploy, "smal", fails=True)
        assert "did you mean 'small'? (known: gpu.l4.1, small)" in said
        await other.bentoml(*deploy, "small")
        config = (await own.ask("typed"))["config"]["services"]["Kitchen"]
        assert config["instance_type"] == "small"
        assert await own.stop() == 0
    finally:
        own.destroy()
