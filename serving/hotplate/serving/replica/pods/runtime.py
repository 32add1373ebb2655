"""Makes a bento a pod: what it is made of, and all that its program is told.

Nothing is made here: the environment is built by a Job (`Environments`), files are brought by the
node's agent, which believes the ticket, and what is the replica's own is made by its launcher
(`inside.pod`). What a pod says of its start comes back by `reported`. The same state gives an equal
answer, because a Deployment whose pods would be made of something else starts them anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hotplate.cache.volumes.ticket import Ticket, Use, VolumeModel, signed
from hotplate.deploy.cluster.objects import (
    DRAIN_S,
    PRE_STOP_S,
    SCRATCH_FOLDER,
    VOLUME_FOLDER,
)
from hotplate.deploy.cluster.pod_spec import PodReport, PodRuntime, PodSpec
from hotplate.deploy.workload import Workload
from hotplate.serving.replica.compile_cache import variables as compiled_code
from hotplate.serving.replica.inside.patches.handlers import REPORT_PATH
from hotplate.serving.replica.inside.pod import DEPENDS
from hotplate.serving.replica.inside.reserved import REPLICA_UID
from hotplate.serving.replica.inside.worker import GRACE_SHARE
from hotplate.serving.replica.memory_folders import memory_folder
from hotplate.serving.replica.own_files import (
    OwnFiles,
    Program,
    Shared,
    Surroundings,
    processes_of,
)
from hotplate.serving.replica.pods.bentos import Bentos
from hotplate.serving.replica.pods.environments import Environments, PodEnvironment
from hotplate.serving.replica.pods.report import report_in
from hotplate.serving.replica.secret_values import (
    NoSecrets,
    SecretSource,
    SecretValue,
    of_build,
    of_replica,
)
from hotplate.serving.replica.variables import (
    DEFAULTS,
    service_variables,
    temporary_folder,
    thread_counts,
)

LAUNCHER = "hotplate.serving.replica.inside.pod"
NODE, SCRATCH = Path(VOLUME_FOLDER), Path(SCRATCH_FOLDER)
PYTHON, PARTS = NODE / "env/bin/python", NODE / "parts"
SHARED = Shared(PYTHON, PARTS, trees=NODE / "models", agent_socket=NODE / "agent.sock")
OWN = OwnFiles(SCRATCH)
PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are found beside the environment's."""

NodeSelector = Callable[[Workload], Mapping[str, str]]
ApiAccess = Callable[[Workload, str], Mapping[str, str]]


def any_node(workload: Workload) -> Mapping[str, str]:
    """Its pods may be anywhere."""
    return {}


def no_access(workload: Workload, account: str) -> Mapping[str, str]:
    """Its pods ask with what their own variables say."""
    return {}


class BentoPodRuntime(PodRuntime):
    """Pods of bentos."""

    report_path = REPORT_PATH.decode()

    def __init__(
        self,
        bentos: Bentos,
        environments: Environments,
        ticket_key: bytes,
        *,
        secrets: SecretSource | None = None,
        node_selector: NodeSelector = any_node,
        tolerations: Sequence[Mapping[str, Any]] = (),
        api_access: ApiAccess = no_access,
        pull_policy: str = "IfNotPresent",
        pull_secrets: Sequence[str] = (),
    ) -> None:
        """Without `secrets`, workloads get none. `node_selector` says which nodes a workload's pods
        may be on, as its instance type has it; `api_access` gives, by the workload and the name of
        its account, the variables with which they ask BentoCloud's API for deployments that they
        call by name."""
        self._bentos, self._environments, self._key = bentos, environments, ticket_key
        self._secrets = secrets or NoSecrets()
        self._node_selector, self._tolerations = node_selector, tolerations
        self._api_access = api_access
        self._pull_policy, self._pull_secrets = pull_policy, pull_secrets

    async def pod_spec(self, workload: Workload, service_account: str, namespace: str) -> PodSpec:
        """Raises `PrepareFailed` and `BeingPrepared`."""
        bento = await self._bentos.get(workload.bento_manifest)
        organization, values = workload.key.organization, await self._values(workload)
        secrets = of_replica(organization, values)
        env = service_variables(workload, bento.envs, secrets.env)
        building = of_build(organization, values)
        environment = await self._environments.of(workload, bento, building)
        program = _program(workload, env)
        ticket = _ticket(workload, environment, service_account, namespace)
        access = self._api_access(workload, service_account)
        if access.keys() & program.env.keys():
            access = {}  # whoever names another API, or a key of their own, means that
        return PodSpec(
            image=environment.image,
            command=(str(PYTHON), "-m", LAUNCHER),
            container_env={"PYTHONPATH": str(PARTS)},
            job=_job(workload, program),
            env={**_env(program), **access},
            files=dict(secrets.files),
            ready_path=program.ready_path,
            ticket=signed(ticket, self._key),
            node_selector=self._node_selector(workload),
            tolerations=self._tolerations,
            pull_policy=self._pull_policy,
            pull_secrets=self._pull_secrets,
        )

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._environments.subscribe(changed)

    def reported(self, content: bytes) -> PodReport | None:
        return report_in(content)

    async def _values(self, workload: Workload) -> Sequence[SecretValue]:
        if not workload.secrets:
            return ()
        return await self._secrets.values(workload.key.organization, workload.secrets)


def _program(workload: Workload, env: Mapping[str, str]) -> Program:
    """What the launcher becomes."""
    below = {
        **DEFAULTS,
        "PATH": PATHS,
        "HOME": str(SCRATCH / "user"),
        **temporary_folder(OWN.temporary),
        **compiled_code(OWN.compiled),
        **thread_counts(workload.resources.cpus, processes_of(workload)),
    }
    placing = {"folder": str(memory_folder(SCRATCH, walled=True)), "of": str(SCRATCH)}
    given = replace(workload, stop_grace_s=_stop_grace_s(workload))
    return OWN.program(given, "", SHARED, Surroundings(below, env, placing))


def _stop_grace_s(workload: Workload) -> float:
    """From the signal to the end. Requests have their share of it, and none is cut that is within
    its time."""
    left_s = DRAIN_S - PRE_STOP_S + workload.request_timeout_s
    return max(left_s, workload.request_timeout_s / GRACE_SHARE)


def _job(workload: Workload, program: Program) -> dict[str, Any]:
    """What everybody may read: addresses of other services have a secret in them."""
    models = [[model.name, model.version] for model in workload.models]
    return {**program.job, "depends": {}, "models": models}


def _env(program: Program) -> dict[str, str]:
    """Its variables, but for those that a pod knows itself."""
    kept = {name: value for name, value in program.env.items() if name != REPLICA_UID}
    return {**kept, DEPENDS: json.dumps(program.job["depends"], sort_keys=True)}


def _ticket(
    workload: Workload, environment: PodEnvironment, service_account: str, namespace: str
) -> Ticket:
    key = workload.key
    return Ticket(
        namespace=namespace,
        service_account=service_account,
        organization=key.organization,
        owner=workload.owned_by,
        deployment=key.deployment,
        revision=key.revision,
        service=key.service,
        use=Use.REPLICA,
        bento=workload.bento_manifest,
        environment=environment.manifest,
        models=tuple(
            VolumeModel(model.name, model.version, model.manifest) for model in workload.models
        ),
    )
