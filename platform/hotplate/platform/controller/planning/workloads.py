"""From a stored revision to the workloads that its services need; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hotplate.autoscaler.policy import Policy
from hotplate.autoscaler.sharing.amounts import NOTHING, Amounts
from hotplate.deploy.local.placement import DEFAULT_MEMORY_BYTES
from hotplate.deploy.workload import Model, Resources, Workload, WorkloadKey
from hotplate.platform.controller.planning.ceiling import Ceiling
from hotplate.platform.controller.planning.inner_addresses import THIS_MACHINE, InnerAddresses
from hotplate.platform.controller.planning.instance_types import retired
from hotplate.platform.controller.planning.tenancy import ISOLATED, Tenancy
from hotplate.platform.errors import Invalid
from hotplate.platform.instance_type import InstanceType
from hotplate.platform.spec.annotations import binary_of
from hotplate.platform.spec.bento_manifest import (
    NamedDeployment,
    called_services,
    entry_service,
    named_deployments,
    services_run,
)
from hotplate.platform.spec.replica_keys import ReplicaKeys
from hotplate.platform.spec.service_config import merged
from hotplate.platform.spec.system_packages import refused, skipped
from hotplate.platform.store.records import Artifact, Deployment, Revision
from hotplate.serving.replica.inside.patches.siblings import calling_url
from hotplate.serving.replica.slots import slots
from hotplate.serving.replica.variables import cloud_variables


@dataclass(frozen=True)
class Service:
    """One service of a revision: what runs, how it scales, what it calls."""

    workload: Workload
    policy: Policy
    dependencies: tuple[str, ...]
    """Names of the services of the same bento that this one calls."""
    timeout_s: float
    has_tasks: bool = False
    """Whether the platform keeps tasks of it."""
    address: str = ""
    """Where other services that call it reach it, as `InnerAddresses` says; empty = only the public
    calls it. With port 0 there was none left."""
    secret: str = field(default="", repr=False)
    """The secret that other services prove themselves with."""

    @property
    def name(self) -> str:
        """The service's name in the bento."""
        return self.workload.key.service


@dataclass(frozen=True)
class WorkloadRules:
    """How fields of a bento become resources, policies and addresses on this installation."""

    resources: Callable[[Mapping[str, Any]], Resources]
    policy: Callable[[Mapping[str, Any], int], Policy]
    instance_types: Mapping[str, InstanceType]
    ceiling: Ceiling
    """The most that one replica can have."""
    tenancy: Tenancy = ISOLATED
    """Which organizations may be served side by side."""
    revisions_kept: int = 10
    """How many of a deployment's last revisions can be returned to."""
    refuse_commands: bool = False
    """Whether a bento is refused whose image has commands that nobody would run."""
    dev_idle_s: float = 3600.0
    """A code space sleeps after so long without requests."""
    inner: InnerAddresses = THIS_MACHINE
    """Where services of one bento reach each other."""
    namespace: str = "default"
    """The API's `kube_namespace`."""
    url: Callable[[Deployment], str] = lambda deployment: f"http://localhost:{deployment.port}"
    """The URL at which callers reach a deployment."""
    secret: Callable[[Revision], str] = lambda revision: ""
    """The secret with which the services of a revision call each other through the gateway."""
    keys: ReplicaKeys = field(default_factory=ReplicaKeys)
    """With which replicas call deployments that their bentos name."""


def services_of(
    deployment: Deployment, revision: Revision, models: Sequence[Artifact], rules: WorkloadRules
) -> tuple[Service, ...]:
    """The services of a revision, the entry service first."""
    manifest = revision.bento.manifest
    entry = entry_service(manifest)
    return tuple(
        _service(deployment, revision, models, rules, described=item, entry=item["name"] == entry)
        for item in _described(manifest)
    )


def _described(manifest: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """A bento's services, the entry service first; a bento that lists none has only that one."""
    entry = entry_service(manifest)
    return sorted(services_run(manifest), key=lambda service: service["name"] != entry) or [
        {"name": entry}
    ]


def called_by(services: Sequence[Service], callers: Iterable[str]) -> set[str]:
    """Names of the services that these call, directly or through others."""
    calls = {service.name: service.dependencies for service in services}
    called: set[str] = set()
    pending = list(callers)
    while pending:
        for needed in calls.get(pending.pop(), ()):
            if needed not in called:
                called.add(needed)
                pending.append(needed)
    return called


def _service(
    deployment: Deployment,
    revision: Revision,
    models: Sequence[Artifact],
    rules: WorkloadRules,
    *,
    described: Mapping[str, Any],
    entry: bool,
) -> Service:
    name = described["name"]
    settings = _settings_of(revision, name)
    overrides = settings.get("config_overrides") or {}
    config = merged(described.get("config") or {}, overrides)
    has_tasks = entry and bool(task_paths(revision.bento.manifest))
    dependencies = tuple(called_services(described))
    secret = rules.secret(revision)
    policy = rules.policy(settings.get("scaling") or {}, slots(config, has_tasks).number)
    if deployment.dev:
        policy = replace(policy, scale_down_window_s=rules.dev_idle_s)
    timeout_s = float((config.get("traffic") or {}).get("timeout") or 60)
    key = WorkloadKey(deployment.organization.name, deployment.name, revision.number, name)
    workload = Workload(
        key=key,
        bento_name=revision.bento.repository.name,
        bento_version=revision.bento.version,
        bento_manifest=revision.bento.files,
        models=tuple(Model(m.repository.name, m.version, m.files) for m in models if m.files),
        entry=entry,
        owner=deployment.organization.owner,
        env=_env(revision, settings),
        secrets=tuple(revision.config.get("secrets") or ()),
        cloud=cloud_variables(deployment.name, rules.namespace, rules.url(deployment)),
        config_overrides=overrides,
        config=config,
        depends={
            n: calling_url(_address(replace(key, service=n), revision, rules), secret)
            for n in dependencies
        },
        calls=tuple(n.name for n in callable_deployments(revision.bento.manifest, rules)),
        resources=rules.ceiling.cap(_resources(settings, config, rules)),
        instance_type=settings.get("instance_type") or "",
        request_timeout_s=timeout_s,
        **_limits(settings, config),
    )
    return Service(
        workload,
        policy,
        dependencies,
        timeout_s,
        has_tasks=has_tasks,
        address="" if entry else _address(key, revision, rules),
        secret=secret,
    )


def _address(key: WorkloadKey, revision: Revision, rules: WorkloadRules) -> str:
    services = [each["name"] for each in _described(revision.bento.manifest)]
    return rules.inner.of(key, services, revision.ports.get(key.service, 0))


def callable_deployments(
    manifest: Mapping[str, Any], rules: WorkloadRules
) -> list[NamedDeployment]:
    """The deployments that a bento names and that may be of this installation."""
    return [n for n in named_deployments(manifest) if n.cluster in ("", rules.namespace)]


def _settings_of(revision: Revision, service: str) -> Mapping[str, Any]:
    """The deployment's settings for a service; one without any scales like the entry service."""
    by_service: Mapping[str, Any] = revision.config.get("services") or {}
    if service in by_service:
        return by_service[service] or {}
    like = by_service.get(entry_service(revision.bento.manifest)) or {}
    return {"scaling": like.get("scaling")}


def least_amounts(
    manifest: Mapping[str, Any],
    config: Mapping[str, Any],
    labels: Sequence[Mapping[str, str]],
    rules: WorkloadRules,
) -> Amounts:
    """What the `min_replicas` of a revision's services need together.

    Where queries decide, the entry service may have no replica, whatever its `min_replicas` is.
    """
    added = NOTHING
    by_queries = entry_service(manifest) if binary_of(labels) else ""
    for name, settings, resources in _sizes(manifest, config, rules):
        if name != by_queries:
            least = (settings.get("scaling") or {}).get("min_replicas") or 0
            added = added.plus(amounts_of(rules.ceiling.cap(resources)), least)
    return added


def notes(
    manifest: Mapping[str, Any], config: Mapping[str, Any], rules: WorkloadRules
) -> list[tuple[str, str]]:
    """What the owner should know of a revision: kind and sentence of each event.

    Raises Invalid where a replica of a service could never run, and where commands of its image
    are refused.
    """
    events = []
    for name, settings, resources in _sizes(manifest, config, rules):
        if why := rules.ceiling.refusal(resources, rules.instance_types):
            field = "instance_type" if settings.get("instance_type") else "config.resources"
            raise Invalid(f"services.{name}.{field}: {why}")
        if capped := rules.ceiling.cap_note(resources):
            events.append(("CpusCapped", f"service {name!r} {capped}"))
    if rules.refuse_commands and (why := refused(manifest)):
        raise Invalid(f"bento: {why}")
    if commands := skipped(manifest):
        events.append(("CommandsSkipped", commands))
    return events


def _sizes(
    manifest: Mapping[str, Any], config: Mapping[str, Any], rules: WorkloadRules
) -> Iterator[tuple[str, Mapping[str, Any], Resources]]:
    """For each service its name, the deployment's settings for it, and one replica's request."""
    by_service: Mapping[str, Any] = config.get("services") or {}
    for item in _described(manifest):
        settings = by_service.get(item["name"]) or {}
        merged_config = merged(item.get("config") or {}, settings.get("config_overrides") or {})
        yield item["name"], settings, _resources(settings, merged_config, rules)


def amounts_of(resources: Resources) -> Amounts:
    """What one replica is counted as: with the default memory where it requests none."""
    memory_bytes = resources.memory_bytes or DEFAULT_MEMORY_BYTES
    return Amounts(resources.gpus, resources.cpus, memory_bytes, replicas=1)


def task_paths(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths of the entry service's tasks; a manifest does not list those of other services."""
    routes = (manifest.get("schema") or {}).get("routes") or ()
    return tuple(route["route"] for route in routes if route.get("is_task"))


def _env(revision: Revision, settings: Mapping[str, Any]) -> dict[str, str]:
    """The deployment's variables, overridden by the service's: the author's defaults are the
    runtime's to add, below those of secrets.

    The stock client sends the author's defaults as the deployment's variables where nobody gives
    others, so one with the same value is no word of the deployment's.
    """
    authored = revision.bento.manifest.get("envs") or ()
    defaults = {i["name"]: i.get("value") for i in authored if i.get("stage") != "build"}
    deployment = {item["name"]: str(item["value"]) for item in revision.config.get("envs") or ()}
    said = {n: value for n, value in deployment.items() if not value or value != defaults.get(n)}
    return said | {item["name"]: str(item["value"]) for item in settings.get("envs") or ()}


def _resources(
    settings: Mapping[str, Any], config: Mapping[str, Any], rules: WorkloadRules
) -> Resources:
    if instance_type := settings.get("instance_type"):
        offered = rules.instance_types.get(instance_type)
        named = offered.resources if offered else retired(instance_type)
        if named is not None:
            return named
    return rules.resources(config)


def _limits(settings: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if timeout_s := settings.get("cold_start_timeout"):
        limits["cold_start_timeout_s"] = float(timeout_s)
    if isinstance(workers := config.get("workers"), int):
        limits["workers"] = workers
    return limits
