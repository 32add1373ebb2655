"""The objects of a build: its Job, and the Secret with its instructions, which goes with it; pure.

Its pod has no right, no token and no credential. It writes into two folders, both of limited size:
`/hotplate/env`, which the node's agent takes over, and `/scratch`, which is `/tmp` too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from hotplate.deploy.cluster.builds.spec import (
    ACCOUNT,
    ENDED_FILE,
    ENV_FOLDER,
    INSTRUCTIONS_FILE,
    BuildSettings,
    JobBuild,
    namespace_of,
)
from hotplate.deploy.cluster.kinds import JOB, SECRET, ObjectKind
from hotplate.deploy.cluster.objects import (
    AGENT_DRIVER,
    SCRATCH_FOLDER,
    TICKET,
    USER,
    VOLUME_FOLDER,
    Manifest,
)
from hotplate.deploy.cluster.quantities import binary, thousandths

CONTAINER = "build"
LEAST_CPUS, LEAST_MEMORY_BYTES, LEAST_DISK_BYTES = 0.5, 512 << 20, 2 << 30
"""What a build is counted with, unless it may have less."""
KEPT_S = 3600
"""How long the cluster keeps a Job that has ended: nobody removes it while we are away."""
LOST_NODE_S = 30
"""How long a build waits for a node that nobody hears of."""
_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def job(build: JobBuild, settings: BuildSettings) -> Manifest:
    """Its Job."""
    meta = _meta(build, settings)
    return {
        **_object(JOB, meta),
        "spec": {
            "backoffLimit": 0,  # we begin anew what was killed, and know why
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": -int(-settings.timeout_s // 1),
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {
                "metadata": {"labels": dict(meta["labels"])},
                "spec": _pod(build, settings),
            },
        },
    }


def secret(build: JobBuild, settings: BuildSettings, job_uid: str) -> Manifest:
    """Its instructions, owned by its Job."""
    owner = {"apiVersion": JOB.version, "kind": JOB.name, "name": build.name, "uid": job_uid}
    content = json.dumps(build.instructions, sort_keys=True).encode()
    return {
        **_object(SECRET, {**_meta(build, settings), "ownerReferences": [owner]}),
        "type": "Opaque",
        "data": {_file(): base64.b64encode(content).decode()},
    }


def _object(kind: ObjectKind, meta: Mapping[str, Any]) -> Manifest:
    return {"apiVersion": kind.version, "kind": kind.name, "metadata": dict(meta)}


def _meta(build: JobBuild, settings: BuildSettings) -> dict[str, Any]:
    return {
        "name": build.name,
        "namespace": namespace_of(settings.release),
        "labels": build.labels,
    }


def _file() -> str:
    return INSTRUCTIONS_FILE.rpartition("/")[2]


def _pod(build: JobBuild, settings: BuildSettings) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": _tolerations(settings),
        "containers": [_container(build, settings)],
        "volumes": _volumes(build, settings),
    }
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.pull_secrets]
    return spec


def _tolerations(settings: BuildSettings) -> list[dict[str, Any]]:
    """Those given, and how long a node may be lost, unless that is among them."""
    given = [dict(each) for each in settings.tolerations]
    named = {each.get("key") for each in given}
    lost = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_NODE_S}
    return [*given, *({"key": key, **lost} for key in _LOST if key not in named)]


def _container(build: JobBuild, settings: BuildSettings) -> dict[str, Any]:
    env = [{"name": name, "value": value} for name, value in build.container_env.items()]
    return {
        "name": CONTAINER,
        "image": build.image,
        "imagePullPolicy": settings.pull_policy,
        "command": list(build.command),
        "env": env,
        "workingDir": SCRATCH_FOLDER,
        "resources": _resources(settings),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": ENDED_FILE,
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {
                "name": "hotplate",
                "mountPath": VOLUME_FOLDER,
                "readOnly": True,
                "mountPropagation": "HostToContainer",
            },
            {"name": "env", "mountPath": ENV_FOLDER},
            {"name": "scratch", "mountPath": SCRATCH_FOLDER},
            {"name": "scratch", "mountPath": "/tmp", "subPath": "tmp"},
            {
                "name": "instructions",
                "mountPath": INSTRUCTIONS_FILE.rpartition("/")[0],
                "readOnly": True,
            },
        ],
    }


def _volumes(build: JobBuild, settings: BuildSettings) -> list[dict[str, Any]]:
    given = {
        "driver": AGENT_DRIVER,
        "readOnly": True,
        "volumeAttributes": {TICKET: build.ticket},
    }
    return [
        {"name": "hotplate", "csi": given},
        {"name": "env", "emptyDir": {"sizeLimit": binary(settings.disk_bytes // 2)}},
        {"name": "scratch", "emptyDir": {"sizeLimit": binary(settings.disk_bytes)}},
        {"name": "instructions", "secret": {"secretName": build.name, "defaultMode": 0o440}},
    ]


def _resources(settings: BuildSettings) -> dict[str, dict[str, str]]:
    return {
        "requests": {
            "cpu": thousandths(min(LEAST_CPUS, settings.cpus)),
            "memory": binary(min(LEAST_MEMORY_BYTES, settings.memory_bytes)),
            "ephemeral-storage": binary(min(LEAST_DISK_BYTES, settings.disk_bytes)),
        },
        "limits": {
            "cpu": thousandths(settings.cpus),
            "memory": binary(settings.memory_bytes),
            "ephemeral-storage": binary(settings.disk_bytes),
        },
    }
