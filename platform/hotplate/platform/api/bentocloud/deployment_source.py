"""What a deployment is made of: its bento and the bento's models, all of them usable."""

from __future__ import annotations

from hotplate.platform.api.bentocloud.archives.unpacking import Unpacking
from hotplate.platform.api.bentocloud.hub_models import HubModels
from hotplate.platform.errors import Invalid, NotFound, StillUnpacking
from hotplate.platform.spec.bento_manifest import model_tags
from hotplate.platform.store.artifacts import Artifacts
from hotplate.platform.store.records import Artifact, Kind, Organization


class DeploymentSource:
    """Finds what a deployment is made of, and waits while its files are still being unpacked."""

    def __init__(
        self, artifacts: Artifacts, unpacking: Unpacking, hub_models: HubModels, wait_s: float
    ) -> None:
        self._artifacts = artifacts
        self._unpacking = unpacking
        self._hub_models = hub_models
        self._wait_s = wait_s
        """How long an artifact that is being unpacked is waited for."""

    async def bento(self, organization: Organization, tag: str) -> Artifact:
        """The bento of `name:version`, or the latest uploaded one of `name`.

        Raises Invalid where it, or a model that it names, is missing, was not uploaded or cannot be
        brought from its hub, and StillUnpacking where one of them is not ready yet.
        """
        name, _, version = tag.partition(":")
        if not name:
            raise Invalid(f"bento: {tag!r:.80} names no bento; write NAME:VERSION")
        if version in ("", "latest"):
            latest = await self._artifacts.run(
                self._artifacts.latest, organization.id, Kind.BENTO, name, uploaded=True
            )
            if latest is None:
                raise Invalid(f"bento: no version of {name!r:.80} is uploaded; push it first")
            bento = latest
        else:
            bento = await self._usable(organization, Kind.BENTO, tag, "bento")
        for model in model_tags(bento.manifest):
            await self._usable(organization, Kind.MODEL, model, f"bento '{bento.tag}'")
        if bento.files:  # those of a code space come later, and its replicas check them
            await self._hub_models.check(bento)
        return bento

    async def _usable(
        self, organization: Organization, kind: Kind, tag: str, path: str
    ) -> Artifact:
        name, _, version = tag.partition(":")
        try:
            artifact = await self._artifacts.run(
                self._artifacts.get, organization.id, kind, name, version
            )
        except NotFound as error:
            raise Invalid(
                f"{path}: {kind} {tag!r:.80} does not exist here; push it first"
            ) from error
        if not artifact.usable and self._unpacking.busy(artifact.id):
            artifact = await self._unpacking.wait(artifact, self._wait_s)
        if not artifact.usable and self._unpacking.busy(artifact.id):
            raise StillUnpacking(f"{path}: {kind} '{tag}' is still being unpacked; try again soon")
        if not artifact.usable:
            raise Invalid(
                f"{path}: {kind} '{tag}' is not uploaded (upload {artifact.upload_status}); "
                "push it again"
            )
        return artifact
