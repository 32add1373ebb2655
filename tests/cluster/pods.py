"""A pod of one of this tree's images that runs one command, at the level `restricted`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from tests.cluster.images.ours import reference
from tests.cluster.kubectl import Kubectl

_GIVEN = {"hotplate": "HOTPLATE_IMAGE", "hotplate-runtime": "HOTPLATE_RUNTIME_IMAGE"}
"""Where a cluster of somebody else's pulls them from."""
_ENDED = "--for=jsonpath={.status.phase}=Succeeded"


def printed_by(
    kubectl: Kubectl,
    namespace: str,
    image: str,
    *command: str,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What a container of the image prints, whose namespace refuses all but `restricted`."""
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    container = {
        "name": "own",
        "image": os.environ.get(_GIVEN[image]) or reference(image),
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "own", "namespace": namespace},
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    }
    kubectl.wait("get", "serviceaccount", "default", f"--namespace={namespace}", timeout_s=30)
    kubectl.apply([pod])
    kubectl("wait", _ENDED, "pod/own", f"--namespace={namespace}", "--timeout=60s")
    return kubectl("logs", "own", f"--namespace={namespace}")
