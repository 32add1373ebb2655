"""What the chart may be given: nothing that nobody reads, and all that the platform can be told."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from hotplate.deploy.standbys import StandbySettings
from hotplate.platform.settings import PlatformSettings

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy/manifests/chart"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
GIVEN_OTHERWISE = {
    "host", "port", "database_url", "blobs_url", "tls_certificate", "tls_key", "access_log",
    "advertise_host", "control_planes", "drain_s",
}  # fmt: skip
"""By other values of the chart, or the same on every cluster."""
OF_ONE_MACHINE = {
    "deployment_ports", "arena_bytes", "cpus", "cpu_overcommit", "replica_reads", "replica_writes",
}  # fmt: skip


def refusals(**changed: Any) -> list[str]:
    validator = jsonschema.Draft7Validator(SCHEMA)
    return [error.message for error in validator.iter_errors({**DEFAULTS, **changed})]


def sections(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place in the values that has keys of its own."""
    if schema.get("additionalProperties") is False:
        yield path
        for name, below in schema["properties"].items():
            yield from sections(below, (*path, name))


def test_the_defaults_are_allowed_and_name_every_value() -> None:
    assert refusals() == []
    given = {key: value for key, value in SCHEMA["properties"].items() if key != "global"}
    assert set(given) == set(DEFAULTS)
    for name in ("blobs", "database", "image", "controlPlane", "gateway", "agent", "capacity"):
        assert set(given[name]["properties"]) == set(DEFAULTS[name]), name


@pytest.mark.parametrize("path", sorted(sections(SCHEMA)), ids=".".join)
def test_a_typing_error_is_refused_everywhere(path: tuple[str, ...]) -> None:
    values = copy.deepcopy(DEFAULTS)
    section = values
    for name in path:
        section = section.setdefault(name, {})
    section["tpyo"] = 1
    (said,) = refusals(**values)
    assert "'tpyo' was unexpected" in said


@pytest.mark.parametrize(
    "changed",
    [
        {"url": "https://models.example.com"},
        {"url": "models.example.com"},
        {"agent": {"memory": "4 apples"}},
        {"gateway": {"replicas": 0}},
        {"gateway": {"service": {"type": "Nodeport"}}},
        {"image": {"pullPolicy": "ifnotpresent"}},
        {"runtimes": []},
        {"runtimes": [{"python": "3"}]},
        {"instanceTypes": {"gpu.l4.1": {"cpus": 8}}},
        {"settings": {"platform": {"host": "0.0.0.0"}}},
    ],
    ids=json.dumps,
)
def test_a_value_that_means_nothing_is_refused(changed: dict[str, Any]) -> None:
    assert refusals(**changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"url": "https://*.models.example.com"},
        {"url": "http://*.models.test:30080"},
        {"agent": {"memory": "1.5GiB", "disk": "500GB"}},
        {"instanceTypes": {"gpu.l4.1": {"cpus": 8, "memory": "32GiB", "gpus": 1, "price": 0.8}}},
        {"capacity": {"cpus": 64, "memory": "256GiB", "gpus": 8}},
        {"settings": {"platform": {"gc_grace_s": 60}, "standby": {"mode": "fixed", "count": 2}}},
    ],
    ids=json.dumps,
)
def test_a_value_that_the_readme_names_is_allowed(changed: dict[str, Any]) -> None:
    assert refusals(**changed) == []


def test_every_setting_of_the_platform_can_be_given_unless_the_chart_gives_it() -> None:
    keys = SCHEMA["properties"]["settings"]["properties"]
    platform = {field.name for field in fields(PlatformSettings)}
    assert set(keys["platform"]["properties"]) == platform - GIVEN_OTHERWISE - OF_ONE_MACHINE
    assert set(keys["standby"]["properties"]) == {field.name for field in fields(StandbySettings)}


def test_the_chart_and_its_images_have_the_products_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert DEFAULTS["runtimes"] == [{"python": "3.11", "image": f"hotplate-runtime:{version}"}]
