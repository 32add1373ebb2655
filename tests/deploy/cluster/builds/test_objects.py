"""What a build's Job may, and what goes with it."""

from __future__ import annotations

import base64
import json

from hotplate.deploy.cluster.builds.objects import LOST_NODE_S, job, secret
from hotplate.deploy.cluster.builds.spec import BuildSettings, JobBuild

BUILD = JobBuild(
    digest="0123456789abcdef" * 2,
    organization="acme",
    image="runtime:3.11",
    command=("python3.11", "-m", "program"),
    ticket="signed",
    instructions={"env": {"TOKEN": "build-secret"}},
    container_env={"PYTHONPATH": "/hotplate/parts"},
)
SETTINGS = BuildSettings(release="rel", timeout_s=90.5, pull_secrets=("registry",))


def test_it_is_named_after_what_is_built_and_labelled() -> None:
    made = job(BUILD, SETTINGS)
    assert made["metadata"]["name"] == "env-0123456789abcdef"
    assert made["metadata"]["namespace"] == "rel-builds"
    labels = {
        "app.kubernetes.io/managed-by": "hotplate",
        "app.kubernetes.io/part-of": "hotplate",
        "hotplate.dev/organization": "acme",
        "hotplate.dev/role": "build",
    }
    assert made["metadata"]["labels"] == labels
    assert made["spec"]["template"]["metadata"]["labels"] == labels


def test_its_pod_has_neither_right_nor_token_nor_a_root_that_it_writes_to() -> None:
    made = job(BUILD, SETTINGS)
    assert (made["spec"]["backoffLimit"], made["spec"]["activeDeadlineSeconds"]) == (0, 91)
    pod = made["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["restartPolicy"] == "Never"
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    (container,) = pod["containers"]
    assert container["name"] == "build"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"] == {
        "cpu": "2",
        "memory": "4Gi",
        "ephemeral-storage": "40Gi",
    }
    assert "build-secret" not in json.dumps(made)


def test_it_sees_its_ticket_s_volume_and_writes_below_it_only_into_its_environment() -> None:
    pod = job(BUILD, SETTINGS)["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounts = {each["mountPath"]: each for each in pod["containers"][0]["volumeMounts"]}
    assert volumes["hotplate"]["csi"] == {
        "driver": "agent.hotplate.dev",
        "readOnly": True,
        "volumeAttributes": {"hotplate.dev/ticket": "signed"},
    }
    assert mounts["/hotplate"]["readOnly"] is True
    assert mounts["/hotplate/env"] == {"name": "env", "mountPath": "/hotplate/env"}
    assert volumes["env"]["emptyDir"] == {"sizeLimit": "20Gi"}
    assert {path for path, each in mounts.items() if "readOnly" not in each} == {
        "/hotplate/env",
        "/scratch",
        "/tmp",
    }


def test_a_lost_node_is_waited_for_as_long_as_the_operator_says() -> None:
    (own,) = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]
    settings = BuildSettings(tolerations=[own], node_selector={"pool": "cpu"})
    pod = job(BUILD, settings)["spec"]["template"]["spec"]
    assert pod["tolerations"][0] == own
    (added,) = pod["tolerations"][1:]
    assert (added["key"], added["tolerationSeconds"]) == (
        "node.kubernetes.io/not-ready",
        LOST_NODE_S,
    )
    assert pod["nodeSelector"] == {"pool": "cpu"}


def test_little_is_asked_for_where_little_is_allowed() -> None:
    settings = BuildSettings(cpus=0.25, memory_bytes=256 << 20, disk_bytes=1 << 30)
    container = job(BUILD, settings)["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"] == container["resources"]["limits"]


def test_its_instructions_go_with_it() -> None:
    made = secret(BUILD, SETTINGS, "uid-7")
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", BUILD.name, "uid-7")
    assert made["metadata"]["name"] == BUILD.name
    content = base64.b64decode(made["data"]["build.json"])
    assert json.loads(content) == BUILD.instructions
    assert "build-secret" not in repr(BUILD)
