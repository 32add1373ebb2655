from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from hotplate.autoscaler.bentoml_policy import policy_from
from hotplate.deploy.quantities import GIB, resources_of
from hotplate.deploy.workload import Resources, WorkloadKey
from hotplate.platform.controller.planning.ceiling import Ceiling
from hotplate.platform.controller.planning.instance_types import instance_types, sizes
from hotplate.platform.controller.planning.workloads import Service, WorkloadRules, services_of
from hotplate.platform.instance_type import InstanceType
from hotplate.platform.spec.bento_manifest import model_tags
from hotplate.platform.spec.service_config import merged
from tests.support.control_plane.situations import deployment, revision

SMALL = Resources(1, 2 * GIB)
RULES = WorkloadRules(
    resources=resources_of,
    policy=policy_from,
    instance_types={"cpu.1": InstanceType(SMALL)},
    ceiling=Ceiling(Resources(2, 8 * GIB), shares_cpus=True),
)
MANIFEST: dict[str, Any] = {
    "entry_service": "Chat",
    "services": [
        {"name": "Tokenizer", "config": {"threads": 4}},
        {
            "name": "Chat",
            "config": {"traffic": {"concurrency": 8, "timeout": 5}, "resources": {"cpu": "500m"}},
            "dependencies": [{"service": "Tokenizer"}, {"url": "http://elsewhere"}],
        },
    ],
    "envs": [{"name": "A", "value": "author"}, {"name": "B", "value": "x", "stage": "build"}],
}


def services(
    config: dict[str, Any], manifest: dict[str, Any] = MANIFEST, rules: WorkloadRules = RULES
) -> dict[str, Service]:
    row = revision(1)
    row = replace(
        row,
        bento=replace(row.bento, manifest=manifest),
        config=config,
        ports={"Tokenizer": 7999},
    )
    made = services_of(deployment(row, row), row, [], rules)
    return {service.name: service for service in made}


def test_the_entry_service_comes_first_and_is_wired_to_those_it_calls() -> None:
    made = services({})
    assert list(made) == ["Chat", "Tokenizer"]
    assert made["Chat"].dependencies == ("Tokenizer",)
    assert made["Chat"].workload.depends == {"Tokenizer": "http://127.0.0.1:7999"}
    assert made["Chat"].workload.entry
    assert not made["Tokenizer"].workload.entry


class ByName:
    """Every inner service has a name."""

    need_ports = False

    def of(self, key: WorkloadKey, services: Collection[str], port: int) -> str:
        return f"{key.service.lower()}-{key.revision}.{key.organization}.svc"


def test_where_names_lead_to_services_these_are_what_others_call() -> None:
    made = services({}, rules=replace(RULES, inner=ByName(), secret=lambda revision: "s"))
    url = "http://hotplate:s@tokenizer-1.acme.svc"
    assert made["Chat"].workload.depends == {"Tokenizer": url}
    assert (made["Chat"].address, made["Tokenizer"].address) == ("", "tokenizer-1.acme.svc")


def test_every_service_is_told_of_its_deployment_as_bentocloud_tells() -> None:
    rules = replace(RULES, namespace="lab", url=lambda deployment: f"https://me:{deployment.port}")
    row = replace(revision(1), ports={"Tokenizer": 7999})
    row = replace(row, bento=replace(row.bento, manifest=MANIFEST))
    for service in services_of(deployment(row, row), row, [], rules):
        assert service.workload.cloud == {
            "BENTOCLOUD_DEPLOYMENT_URL": "https://me:7100",
            "BENTOCLOUD_DEPLOYMENT_NAME": "echo",
            "BENTOCLOUD_DEPLOYMENT_NAMESPACE": "lab",
            "YATAI_BENTO_DEPLOYMENT_NAME": "echo",
            "YATAI_BENTO_DEPLOYMENT_NAMESPACE": "lab",
        }


def test_slots_resources_and_timeout_come_from_the_service() -> None:
    made = services({})
    assert made["Chat"].policy.concurrency == 8
    assert made["Chat"].workload.resources.cpus == 0.5
    assert made["Chat"].timeout_s == 5
    assert made["Tokenizer"].policy.concurrency == 32, "nobody knows its methods yet"


def test_a_deployment_overrides_the_author() -> None:
    said = {
        "services": {
            "Chat": {
                "instance_type": "cpu.1",
                "cold_start_timeout": 77,
                "config_overrides": {"traffic": {"concurrency": 2}},
                "envs": [{"name": "A", "value": "service"}],
                "scaling": {"min_replicas": 0, "max_replicas": 4},
            }
        },
        "envs": [{"name": "A", "value": "all"}, {"name": "C", "value": "c"}],
    }
    chat = services(said)["Chat"]
    assert chat.workload.resources == SMALL
    assert chat.workload.cold_start_timeout_s == 77
    assert chat.policy.concurrency == 2
    assert chat.timeout_s == 5
    assert chat.workload.env == {"A": "service", "C": "c"}
    assert (chat.policy.min_replicas, chat.policy.max_replicas) == (0, 4)


def test_an_empty_value_of_a_deployment_is_a_value() -> None:
    said = {"envs": [{"name": "A", "value": ""}, {"name": "C", "value": ""}]}
    assert services(said)["Chat"].workload.env == {"A": "", "C": ""}
    own = {"services": {"Chat": {"envs": [{"name": "C", "value": ""}]}}}
    assert services({"envs": [{"name": "C", "value": "c"}], **own})["Chat"].workload.env == {
        "C": "",
    }


def test_a_service_that_the_deployment_does_not_name_scales_like_the_entry_service() -> None:
    said = {"services": {"Chat": {"scaling": {"min_replicas": 0, "max_replicas": 3}}}}
    inner = services(said)["Tokenizer"].policy
    assert (inner.min_replicas, inner.max_replicas) == (0, 3)


def test_an_authors_value_is_no_word_of_the_deployment_although_the_client_sends_it() -> None:
    sent = [{"name": "A", "value": "author"}, {"name": "B", "value": "x"}]
    said = services({"envs": sent})["Chat"].workload
    assert said.env == {"B": "x"}, "B's value of the author is for the build alone"
    own = {"services": {"Chat": {"envs": [{"name": "A", "value": "author"}]}}}
    assert services(own)["Chat"].workload.env == {"A": "author"}


def test_secrets_of_a_deployment_are_for_all_of_its_services() -> None:
    found = services({"secrets": ["hf", "db"]})
    assert {each.workload.secrets for each in found.values()} == {("hf", "db")}
    assert services({})["Chat"].workload.secrets == ()


def test_a_bento_without_a_list_of_services_has_one() -> None:
    assert list(services({}, {"entry_service": "Echo"})) == ["Echo"]


def test_mappings_are_laid_over_each_other_and_lists_replaced() -> None:
    below = {"a": {"b": 1, "c": [1]}, "d": 1}
    assert merged(below, {"a": {"c": [2]}}) == {"a": {"b": 1, "c": [2]}, "d": 1}
    assert below == {"a": {"b": 1, "c": [1]}, "d": 1}


@pytest.mark.parametrize("tags", [["m:1", "n:2"]])
def test_the_models_of_all_services_are_found_once(tags: list[str]) -> None:
    manifest = {"models": ["m:1"], "services": [{"models": [{"tag": "m:1"}, {"tag": "n:2"}]}]}
    assert model_tags(manifest) == tags


def test_instance_types_fit_the_machine() -> None:
    types = sizes(Resources(6, 8 * GIB, 2), "H200")
    assert list(types) == ["cpu.1", "cpu.2", "cpu.4", "gpu.H200.1", "gpu.H200.2"]
    assert types["cpu.4"].resources == Resources(4, 8 * GIB)
    assert types["gpu.H200.1"].resources == Resources(3, 4 * GIB, 1)
    shown = instance_types(types)
    assert shown[0]["display_name"] == "cpu.1"
    assert shown[0]["config"]["resources"]["requests"]["cpu"] == "1"


def test_a_replica_asks_for_what_its_type_says() -> None:
    large = InstanceType(Resources(2, 7 * GIB, 0.5), "L4", 1.5)
    offered = replace(RULES, instance_types={"large": large})
    typed = {"services": {"Chat": {"instance_type": "large"}}}
    assert services(typed, rules=offered)["Chat"].workload.resources == large.resources


def test_a_type_that_is_gone_and_says_nothing_leaves_the_bentos_own_request() -> None:
    """A stored deployment may name a type that the operator no longer offers."""
    gone = {"services": {"Chat": {"instance_type": "large"}}}
    assert services(gone)["Chat"].workload.resources.cpus == 0.5
