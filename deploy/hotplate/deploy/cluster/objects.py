"""From a workload to the objects that a cluster keeps for it; pure.

A deployment has an *anchor*, the ConfigMap of its name, which owns all of them: when it goes, they
go, and its finalizer holds it until its pods have drained. Nobody writes `spec.replicas` here: the
Deployment is applied without it, and the scaler has had it since its birth (`birth`), because one
that is applied without would be born with a replica.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from hotplate.cache.volumes import ticket
from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.kinds import (
    CONFIG_MAP,
    POD_DISRUPTION_BUDGET,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    ObjectKind,
)
from hotplate.deploy.cluster.pod_spec import PodSpec
from hotplate.deploy.cluster.quantities import binary, thousandths
from hotplate.deploy.workload import Workload

Manifest = dict[str, Any]
"""An object as it is written: `apiVersion`, `kind`, `metadata` and what it says."""

PORT = 3000
VOLUME_FOLDER, SCRATCH_FOLDER = ticket.FOLDER, "/scratch"
JOB_FOLDER, SECRETS_FOLDER = "/job", "/secrets"
MEMORY_FOLDER = "/dev/shm"
"""As large as the pod's memory: workers of one replica share tensors there, and what containers
have by themselves is 64 MiB."""
VARIABLES, FILES = "env.json", "files.json"
"""The keys of a workload's Secret: variables by name, and contents by paths below `$BENTOML_HOME`.
A pod reads them once, when it starts: a value that changes is for those that start later."""
UID = "HOTPLATE_REPLICA_UID"
"""The variable by which a worker knows who it is: it refuses what is meant for another pod, which
had its address before."""
USER = ticket.USER
AGENT_DRIVER = ticket.DRIVER
TICKET = ticket.TICKET
GPU = "nvidia.com/gpu"
DEFAULT_MEMORY = "512Mi"
"""What a replica is counted with that asks for none."""
PRE_STOP_S = 5
"""How long a pod that ends still takes requests: until every gateway has heard of it."""
DRAIN_S = 15
"""What a pod has to end in, beyond the longest time of a request: `PRE_STOP_S`, and 10 s for the
rest."""
SILENCE_S = 10
"""A replica that has not answered for so long beyond the longest time of a request is restarted."""


@dataclass(frozen=True)
class Placed:
    """A workload, and where its objects are."""

    workload: Workload
    base: str
    """Their name."""
    namespace: str
    release: str
    """The namespace of the installation."""
    called: bool = False
    """Whether other services of its bento call it."""


def tenancy(release: str, organization: str) -> Sequence[Manifest]:
    """An organization's namespace, whose pods have no rights; in it the control plane has those of
    the ClusterRole `RELEASE-tenant`."""
    name = names.tenant_namespace(release, organization)
    labels = names.organization_labels(organization)
    restricted = {
        f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")
    }
    account = {"kind": "ServiceAccount", "name": "hotplate-control-plane"}
    return (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {**labels, **restricted}},
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "hotplate-control-plane", "namespace": name, "labels": labels},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": f"{release}-tenant",
            },
            "subjects": [{**account, "namespace": release}],
        },
    )


def anchor(organization: str, deployment: str, namespace: str) -> Manifest:
    """What owns all objects of a deployment."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.deployment_name(deployment),
            "namespace": namespace,
            "labels": names.deployment_labels(organization, deployment),
            "finalizers": [names.DRAIN],
        },
    }


def owned(manifest: Manifest, anchor_uid: str) -> Manifest:
    """The same, owned by the anchor with that uid."""
    meta = manifest["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": meta["labels"][names.DEPLOYMENT],
        "uid": anchor_uid,
    }
    return {**manifest, "metadata": {**meta, "ownerReferences": [owner]}}


def objects(placed: Placed, pod: PodSpec) -> Sequence[Manifest]:
    """Everything that its replicas need, in the order in which it is to be made."""
    job = _job(placed, pod)
    made = [_service_account(placed), _env(placed, pod), job, _headless(placed), _budget(placed)]
    if placed.called:
        made.append(_calls(placed))
    return [*made, _deployment(placed, pod, job["metadata"]["name"])]


def birth(deployment: Manifest) -> Manifest:
    """What the scaler applies before anybody else: the same, with no replica."""
    return {**deployment, "spec": {**deployment["spec"], "replicas": 0}}


def stamped(manifest: Manifest) -> Manifest:
    """The same, with a digest of it: whoever looks later sees whether it was applied."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    meta = manifest["metadata"]
    stamp = {names.MANIFEST: blake3(text.encode()).hexdigest()[:32]}
    annotations = {**meta.get("annotations", {}), **stamp}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def _object(kind: ObjectKind, placed: Placed, name: str) -> Manifest:
    """What all objects of a workload say."""
    return {"apiVersion": kind.version, "kind": kind.name, "metadata": _meta(placed, name)}


def _meta(placed: Placed, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": placed.namespace,
        "labels": names.labels(placed.workload.key),
    }


def _selector(placed: Placed) -> dict[str, str]:
    """Of its pods; other workloads of the namespace differ in one of these."""
    own = names.labels(placed.workload.key)
    kept = (names.DEPLOYMENT, names.REVISION, names.SERVICE)
    return {**{name: own[name] for name in kept}, names.ROLE: "replica"}


def _service_account(placed: Placed) -> Manifest:
    return {
        **_object(SERVICE_ACCOUNT, placed, placed.base),
        "automountServiceAccountToken": False,
    }


def _env(placed: Placed, pod: PodSpec) -> Manifest:
    """Variables and secret files of pods that start from now on."""
    content = {VARIABLES: dict(pod.env), FILES: dict(pod.files)}
    return {
        **_object(SECRET, placed, f"{placed.base}-env"),
        "type": "Opaque",
        "data": {key: _encoded(value) for key, value in content.items()},
    }


def _encoded(value: Mapping[str, str]) -> str:
    return base64.b64encode(json.dumps(value, sort_keys=True).encode()).decode()


def _job(placed: Placed, pod: PodSpec) -> Manifest:
    content = json.dumps(pod.job, sort_keys=True)
    ending = blake3(content.encode()).hexdigest()[:8]
    return {
        **_object(CONFIG_MAP, placed, f"{placed.base}-{ending}"),
        "immutable": True,
        "data": {"job.json": content},
    }


def _headless(placed: Placed) -> Manifest:
    """Its EndpointSlices tell gateways of every pod, ready or not: they ask for themselves."""
    return {
        **_object(SERVICE, placed, placed.base),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _selector(placed),
            "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def _calls(placed: Placed) -> Manifest:
    """By this name other services of the bento reach it, through the gateway."""
    return {
        **_object(SERVICE, placed, f"{placed.base}-calls"),
        "spec": {
            "type": "ExternalName",
            "externalName": f"hotplate-gateway-internal.{placed.release}.svc.cluster.local",
        },
    }


def _budget(placed: Placed) -> Manifest:
    return {
        **_object(POD_DISRUPTION_BUDGET, placed, placed.base),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": _selector(placed)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _deployment(placed: Placed, pod: PodSpec, job: str) -> Manifest:
    meta = _meta(placed, placed.base)
    told = {names.WORKLOAD: str(placed.workload.key)}
    labels = {**meta["labels"], names.ROLE: "replica"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**meta, "annotations": told},
        "spec": {
            "selector": {"matchLabels": _selector(placed)},
            "revisionHistoryLimit": 0,
            "progressDeadlineSeconds": 2**31 - 1,  # the controller decides what has failed
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0},
            },
            "template": {
                "metadata": {"labels": labels, "annotations": told},
                "spec": _pod(placed, pod, job),
            },
        },
    }


def _pod(placed: Placed, pod: PodSpec, job: str) -> dict[str, Any]:
    spec = {
        "serviceAccountName": placed.base,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": DRAIN_S + _whole(placed.workload.request_timeout_s),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(placed, pod)],
        "volumes": _volumes(placed, pod, job),
    }
    if pod.node_selector:
        spec["nodeSelector"] = dict(pod.node_selector)
    if pod.tolerations:
        spec["tolerations"] = [dict(each) for each in pod.tolerations]
    if pod.pull_secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in pod.pull_secrets]
    return spec


def _container(placed: Placed, pod: PodSpec) -> dict[str, Any]:
    workload = placed.workload
    asked = {"path": pod.ready_path, "port": "http", "scheme": "HTTP"}
    return {
        "name": "replica",
        "image": pod.image,
        "imagePullPolicy": pod.pull_policy,
        "command": list(pod.command),
        "env": _variables(pod),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "resources": _resources(workload),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "startupProbe": {
            "httpGet": asked,
            "periodSeconds": 1,
            "failureThreshold": _whole(workload.cold_start_timeout_s),
        },
        "readinessProbe": {"httpGet": asked, "periodSeconds": 1, "timeoutSeconds": 1},
        "livenessProbe": {
            "httpGet": asked,
            "periodSeconds": SILENCE_S,
            "timeoutSeconds": SILENCE_S,
            "failureThreshold": 1 + -(-_whole(workload.request_timeout_s) // SILENCE_S),
        },
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_S}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(pod),
    }


def _variables(pod: PodSpec) -> list[dict[str, Any]]:
    uid = {"name": UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    return [uid, *({"name": name, "value": value} for name, value in pod.container_env.items())]


def _mounts(pod: PodSpec) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": "scratch", "mountPath": SCRATCH_FOLDER},
        {"name": "memory", "mountPath": MEMORY_FOLDER},
        {"name": "job", "mountPath": JOB_FOLDER, "readOnly": True},
        {"name": "secrets", "mountPath": SECRETS_FOLDER, "readOnly": True},
    ]
    if pod.ticket:
        shown = {"name": "hotplate", "mountPath": VOLUME_FOLDER, "readOnly": True}
        mounts.append({**shown, "mountPropagation": "HostToContainer"})
    return mounts


def _volumes(placed: Placed, pod: PodSpec, job: str) -> list[dict[str, Any]]:
    secret = {"secretName": f"{placed.base}-env", "defaultMode": 0o440}
    volumes: list[dict[str, Any]] = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "job", "configMap": {"name": job}},
        {"name": "secrets", "secret": secret},
    ]
    if pod.ticket:
        attributes = {TICKET: pod.ticket}
        given = {"driver": AGENT_DRIVER, "readOnly": True, "volumeAttributes": attributes}
        volumes.append({"name": "hotplate", "csi": given})
    return volumes


def _resources(workload: Workload) -> Mapping[str, Any]:
    """Memory that is asked for is the limit too; CPUs are asked for; GPUs are its own."""
    asked, gpus = workload.resources, workload.resources.gpus
    memory = binary(asked.memory_bytes) if asked.memory_bytes else DEFAULT_MEMORY
    requests = {"memory": memory}
    limits = {"memory": memory} if asked.memory_bytes else {}
    if asked.cpus:
        requests["cpu"] = thousandths(asked.cpus)
    if gpus:
        requests[GPU] = limits[GPU] = str(_whole(gpus))
    return {"requests": requests, "limits": limits} if limits else {"requests": requests}


def _whole(amount: float) -> int:
    return -int(-amount // 1)
