"""What is ordered of whoever has builds done on a cluster: an environment, with its ticket."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from hotplate.cache.volumes.ticket import Ticket, Use, signed
from hotplate.deploy.cluster.builds.spec import ACCOUNT, JobBuild, namespace_of
from hotplate.deploy.workload import Workload
from hotplate.serving.replica.bento import Bento
from hotplate.serving.replica.environments import bytecode
from hotplate.serving.replica.environments.spec import EnvironmentSpec
from hotplate.serving.replica.pods.instructions import CONTAINER_ENV, command, instructions
from hotplate.serving.replica.pods.notes import about, name_of
from hotplate.serving.replica.pods.runtimes import RuntimeImage
from hotplate.serving.replica.pods.settings import EnvironmentSettings


class BuildOrders:
    """Those of one installation."""

    def __init__(self, ticket_key: bytes, settings: EnvironmentSettings) -> None:
        self._key, self._settings = ticket_key, settings
        self._compiler = Path(bytecode.__file__).read_text(encoding="utf-8")

    def order(
        self,
        workload: Workload,
        bento: Bento,
        spec: EnvironmentSpec,
        runtime: RuntimeImage,
        owner: str,
        digest: str,
    ) -> JobBuild:
        """For the owner's environment of that digest, which the workload's bento needs first."""
        organization = workload.key.organization
        ticket = Ticket(
            namespace=namespace_of(self._settings.release),
            service_account=ACCOUNT,
            organization=organization,
            deployment="",
            revision=0,
            service="",
            use=Use.BUILD,
            bento=workload.bento_manifest,
            note=name_of(digest),
            about=about(owner, digest, runtime.image, workload.bento_manifest),
        )
        told = instructions(
            spec,
            bento.files or (),
            runtime,
            self._settings.inherited,
            self._compiler,
            self._settings.memory_bytes,
        )
        return JobBuild(
            digest=digest,
            organization=organization,
            image=runtime.image,
            command=command(runtime),
            ticket=signed(ticket, self._key),
            instructions=asdict(told),
            container_env=CONTAINER_ENV,
        )
