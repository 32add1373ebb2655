"""Every value of the chart arrives where it is meant, and a wrong one is refused with its place."""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy.standbys import StandbySettings
from hotplate.platform import cli
from hotplate.platform.settings import PlatformSettings
from tests.cluster.errors import TestClusterError
from tests.cluster.helm import CHART, Helm

pytestmark = [pytest.mark.cluster, pytest.mark.together]
CONTROL_PLANE, GATEWAY, AGENT = "hotplate-control-plane", "hotplate-gateway", "hotplate-agent"
VALUES: dict[str, tuple[dict[str, Any], str, Any]] = {
    "a url with a slash": ({"url": "https://*.a.test/"}, "cluster.url", "https://*.a.test"),
    "url": ({"url": "https://*.models.example.com"}, "cluster.url", "https://*.models.example.com"),
    "blobs.url": ({"blobs": {"url": "gs://b/c"}}, "agent --origin", "gs://b/c"),
    "blobs.url of the control plane": (
        {"blobs": {"url": "gs://b/c"}},
        "platform.blobs_url",
        "gs://b/c",
    ),
    "image": ({"image": {"repository": "r/h", "tag": "7"}}, "gateway image", "r/h:7"),
    "image.pullPolicy": ({"image": {"pullPolicy": "Always"}}, "cluster.pull_policy", "Always"),
    "imagePullSecrets": ({"imagePullSecrets": ["one"]}, "cluster.pull_secrets", ["one"]),
    "runtimes": (
        {"runtimes": [{"python": "3.12", "image": "r/t:7"}]},
        "cluster.runtimes",
        [{"python": "3.12", "image": "r/t:7"}],
    ),
    "gateway.replicas": ({"gateway": {"replicas": 3}}, "gateway replicas", 3),
    "gateway.drainSeconds": ({"gateway": {"drainSeconds": 60}}, "gateway --drain-s", "60"),
    "gateway.drainSeconds of its pod": (
        {"gateway": {"drainSeconds": 60}},
        "gateway grace",
        75,
    ),
    "gateway.tls.secretName": (
        {"gateway": {"tls": {"secretName": "certificate"}}},
        "gateway --tls-certificate",
        "/tls/tls.crt",
    ),
    "agent.memory": ({"agent": {"memory": "1.5GiB"}}, "agent --memory", "1610612736"),
    "agent.memory of its pod": ({"agent": {"memory": "1.5GiB"}}, "agent limit", "2684354560"),
    "agent.disk": ({"agent": {"disk": "500GB"}}, "agent --disk", "500000000000"),
    "agent.disk by default": ({}, "agent --disk", None),
    "agent.dataDir": ({"agent": {"dataDir": "/mnt/h"}}, "agent --data", "/mnt/h"),
    "agent.kubeletDir": ({"agent": {"kubeletDir": "/mnt/k"}}, "agent --kubelet", "/mnt/k"),
    "agent.memory in bytes": ({"agent": {"memory": 4 << 30}}, "agent --memory", str(4 << 30)),
    "agent.disk in bytes": ({"agent": {"disk": 4 << 30}}, "agent --disk", str(4 << 30)),
    "the reserve of an agent": (
        {"settings": {"platform": {"disk_reserve_bytes": 4 << 30}}},
        "agent --disk-reserve",
        str(4 << 30),
    ),
    "nodes.selector": ({"nodes": {"selector": {"a": "b"}}}, "agent selector", {"a": "b"}),
    "nodes.selector of replicas": (
        {"nodes": {"selector": {"a": "b"}}},
        "cluster.node_selector",
        {"a": "b"},
    ),
    "nodes.tolerations": (
        {"nodes": {"tolerations": [{"operator": "Exists"}]}},
        "cluster.tolerations",
        [{"operator": "Exists"}],
    ),
    "nodes.tolerations for a time": (
        {"nodes": {"tolerations": [{"key": "a", "tolerationSeconds": 300}]}},
        "cluster.tolerations",
        [{"key": "a", "tolerationSeconds": 300}],
    ),
    "capacity.cpus": ({"capacity": {"cpus": 6.5}}, "cluster.capacity_cpus", 6.5),
    "capacity.memory": ({"capacity": {"memory": "64GiB"}}, "cluster.capacity_memory", "64GiB"),
    "capacity.memory in bytes": (
        {"capacity": {"memory": 64 << 30}},
        "cluster.capacity_memory",
        64 << 30,
    ),
    "capacity.gpus": ({"capacity": {"gpus": 8}}, "cluster.capacity_gpus", 8),
    "instanceTypes": (
        {"instanceTypes": {"a": {"cpus": 1, "memory": "1GiB", "price": 0.5}}},
        "instance_types.a",
        {"cpus": 1, "memory": "1GiB", "price": 0.5},
    ),
    "instanceTypes.a.nodeSelector": (
        {"instanceTypes": {"a": {"cpus": 1, "memory": "1GiB", "nodeSelector": {"c": "d"}}}},
        "cluster.instance_selectors",
        {"a": {"c": "d"}},
    ),
    "settings.platform": (
        {"settings": {"platform": {"gc_grace_s": 60}}},
        "platform.gc_grace_s",
        60,
    ),
    "settings.standby": ({"settings": {"standby": {"count": 2}}}, "standby.count", 2),
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a value that there is not": ({"gatway": {"replicas": 3}}, "'gatway' not allowed"),
    "one within another": ({"agent": {"memry": "1GiB"}}, "(?s)/agent.*'memry' not allowed"),
    "a word for a number": ({"gateway": {"replicas": "two"}}, "/gateway/replicas.*integer"),
    "a number for a word": ({"blobs": {"secretName": 7}}, "/blobs/secretName.*string"),
    "a url without a star": ({"url": "https://models.example.com"}, "/url"),
    "no size": ({"agent": {"memory": "lots"}}, "/agent/memory"),
    "an instance type of no size": ({"instanceTypes": {"a": {"gpus": 1}}}, "instanceTypes/a.*cpus"),
    "a setting that there is not": (
        {"settings": {"platform": {"revision_kept": 3}}},
        "(?s)/settings/platform.*'revision_kept' not allowed",
    ),
    "a setting that the chart makes": (
        {"settings": {"platform": {"port": 80}}},
        "(?s)/settings/platform.*'port' not allowed",
    ),
}


@pytest.mark.parametrize("value", VALUES)
def test_a_value_arrives_where_it_is_meant(helm: Helm, tmp_path: Path, value: str) -> None:
    given, place, expected = VALUES[value]
    found = found_at(helm.rendered("hotplate", given, tmp_path), place)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("fault", REFUSED)
def test_a_wrong_value_is_refused_with_its_place(helm: Helm, tmp_path: Path, fault: str) -> None:
    given, words = REFUSED[fault]
    with pytest.raises(TestClusterError, match=words):
        helm.rendered("hotplate", given, tmp_path)


@pytest.mark.parametrize("part", [CONTROL_PLANE, GATEWAY])
def test_a_service_has_the_type_port_and_annotations_that_are_asked_for(
    helm: Helm, tmp_path: Path, part: str
) -> None:
    value = {CONTROL_PLANE: "controlPlane", GATEWAY: "gateway"}[part]
    given: dict[str, Any] = {"service": {"type": "LoadBalancer", "nodePort": 30100}}
    if part == GATEWAY:
        given["service"]["annotations"] = {"example.com/scheme": "internal"}
    service = one(helm.rendered("hotplate", {value: given}, tmp_path), "Service", part)
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["spec"]["ports"][0]["nodePort"] == 30100
    assert service["metadata"].get("annotations") == given["service"].get("annotations")


def test_secrets_that_are_named_are_those_that_pods_read(helm: Helm, tmp_path: Path) -> None:
    given = {"tokens": {"existingSecret": "own"}, "database": {"secretName": "db"}}
    objects = helm.rendered("hotplate", {**given, "blobs": {"secretName": "bucket"}}, tmp_path)
    for kind, name in (("Deployment", CONTROL_PLANE), ("DaemonSet", AGENT)):
        pod = one(objects, kind, name)["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "bucket"}}]
        assert {"own"} == {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
    database = one(objects, "Deployment", CONTROL_PLANE)["spec"]["template"]["spec"]
    (variable,) = database["containers"][0]["env"]
    assert variable["name"] == "HOTPLATE_PLATFORM__DATABASE_URL"
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "db", "key": "url"}


def test_without_a_database_the_control_plane_has_a_volume_for_one(
    helm: Helm, tmp_path: Path
) -> None:
    volume = {"size": "3Gi", "storageClassName": "fast"}
    given = {"database": {"secretName": ""}, "controlPlane": {"volume": volume}}
    objects = helm.rendered("hotplate", given, tmp_path)
    claim = one(objects, "PersistentVolumeClaim", CONTROL_PLANE)["spec"]
    assert claim["storageClassName"] == "fast"
    assert claim["resources"] == {"requests": {"storage": "3Gi"}}


@pytest.mark.parametrize("part", [CONTROL_PLANE, GATEWAY, AGENT])
def test_every_flag_is_one_of_the_command(helm: Helm, tmp_path: Path, part: str) -> None:
    given = {"gateway": {"tls": {"secretName": "one"}}, "agent": {"disk": "1GB"}}
    kind = "DaemonSet" if part == AGENT else "Deployment"
    pod = one(helm.rendered("hotplate", given, tmp_path), kind, part)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    cli.parsed(container["args"])


@pytest.mark.parametrize(
    ("table", "settings"), [("platform", PlatformSettings), ("standby", StandbySettings)]
)
def test_every_setting_that_the_schema_allows_is_one_of_the_platform(
    table: str, settings: type[PlatformSettings | StandbySettings]
) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    allowed = schema["properties"]["settings"]["properties"][table]["properties"]
    assert allowed.keys() <= {field.name for field in fields(settings)}


def found_at(objects: list[dict[str, Any]], place: str) -> Any:
    """`TABLE.KEY` of the settings file, or something of `agent` or `gateway`."""
    part, _, what = place.partition(" ")
    if not what:
        table, key = place.split(".")
        file = one(objects, "ConfigMap", CONTROL_PLANE)["data"]["hotplate.toml"]
        return tomllib.loads(file)[table][key]
    kind, name = {"agent": ("DaemonSet", AGENT), "gateway": ("Deployment", GATEWAY)}[part]
    spec = one(objects, kind, name)["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    if what.startswith("--"):
        flags = dict(each.split("=", 1) for each in container["args"] if "=" in each)
        return flags.get(what)
    return {
        "image": container["image"],
        "replicas": spec.get("replicas"),
        "grace": pod.get("terminationGracePeriodSeconds"),
        "limit": container["resources"]["limits"]["memory"],
        "selector": pod.get("nodeSelector"),
    }[what]


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found
