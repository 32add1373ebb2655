"""The key with which a replica asks for the deployments that its bento names; pure.

`bentoml.depends(deployment=NAME)` looks the deployment up in BentoCloud's API and then calls it,
both times with the key in `BENTO_CLOUD_API_KEY`. A replica's key follows from the installation's
secret and from which replica it is, so it is kept nowhere: it is good as long as there is that
replica, and opens what the replica's bento names. On a cluster those of a workload have one key, as
they have their variables from one place: it is good as long as there is one of them.
"""

from __future__ import annotations

import hmac

from hotplate.deploy.workload import Workload, WorkloadKey
from hotplate.serving.gateway.protocol.headers import REPLICA_KEY

KEY_VARIABLE, ENDPOINT_VARIABLE = "BENTO_CLOUD_API_KEY", "BENTO_CLOUD_API_ENDPOINT"


class ReplicaKeys:
    """Those of one installation."""

    def __init__(self, secret: str = "", endpoint: str = "") -> None:
        """`secret` is the installation's, and without one there are no keys; `endpoint` is the
        API's URL for replicas."""
        self._secret = secret
        self._endpoint = endpoint

    def variables(self, workload: Workload, replica: str) -> dict[str, str]:
        """What a replica needs to call other deployments by name; nothing where it calls none."""
        if not workload.calls or not self._secret:
            return {}
        key = self.key(workload.key, replica)
        return {KEY_VARIABLE: key, ENDPOINT_VARIABLE: self._endpoint}

    def key(self, workload: WorkloadKey, replica: str) -> str:
        """The key of a replica of that workload."""
        of = f"key of replica {replica} of {workload}"
        proof = hmac.digest(self._secret.encode(), of.encode(), "sha256").hex()
        return f"{REPLICA_KEY}{replica}.{proof}"

    def of_api(self, organization: str) -> str:
        """With which the platform itself calls an organization's protected deployments, given its
        uid, for those who may; empty where there are no keys. It looks like a replica's, so that
        gateways keep it from the replicas that are called."""
        if not self._secret:
            return ""
        proof = hmac.digest(self._secret.encode(), f"calls of {organization}".encode(), "sha256")
        return f"{REPLICA_KEY}api.{proof.hex()}"

    def is_key(self, secret: str, workload: WorkloadKey, replica: str) -> bool:
        """Whether it is that replica's."""
        known = bool(self._secret) and secret.isascii()
        return known and hmac.compare_digest(secret, self.key(workload, replica))


def replica_of(secret: str) -> str:
    """Whose key it would be; empty = no replica's."""
    if not secret.startswith(REPLICA_KEY):
        return ""
    return secret.removeprefix(REPLICA_KEY).rpartition(".")[0]
