"""Which organizations may be served side by side: one, where replicas are not isolated; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hotplate.autoscaler.sharing.allocation import NO_QUOTA, Quota
from hotplate.autoscaler.sharing.amounts import UNLIMITED

_NO_REPLICA = replace(NO_QUOTA, limit=UNLIMITED._replace(replicas=0), standby=0)


@dataclass(frozen=True)
class Tenancy:
    """Whether several organizations may be served, which depends on the isolation of replicas."""

    missing: str = ""
    """Why replicas are not isolated here; "" where they are, or where all trust each other."""

    def refusal(self, organization: str, served: Sequence[str]) -> str:
        """Why a deployment of that organization is refused; "" = it is not.

        `served`: the organizations that have deployments, the one with the oldest first.
        """
        if not self.missing or not served or organization == served[0]:
            return ""
        return (
            f"organization {organization!r} cannot be served beside {served[0]!r}: replicas are "
            f"not isolated on this machine ({self.missing}), so the code of each could read the "
            "other's secrets; run 'hotplate doctor' there, delete the deployments of "
            f"{served[0]!r}, or set [platform] trust_organizations = true"
        )

    def limited(self, quotas: Mapping[str, Quota], served: Sequence[str]) -> Mapping[str, Quota]:
        """The quotas, with no replica for organizations that must not run beside the first."""
        apart = served[1:] if self.missing else ()
        return {**quotas, **dict.fromkeys(apart, _NO_REPLICA)}


ISOLATED = Tenancy()
"""Replicas are isolated, so any organizations may be served side by side."""
