"""This machine as the node of its control plane: the engine, and what makes bentos run on it.

A control plane of a cluster has `cluster.assembly` in place of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hotplate.cache.client import AgentClient
from hotplate.cache.file_view.view_folders import VIEWS
from hotplate.cache.origins.hubs import Hubs
from hotplate.cache.store.blobs import BlobStore
from hotplate.deploy.local.assembly import AssemblySettings, assemble
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.standbys import StandbySettings
from hotplate.machine.free_space import FreeSpace
from hotplate.platform.api.bentocloud.views import origin_of
from hotplate.platform.api.hotplate.models import Holdings
from hotplate.platform.backend import Backend
from hotplate.platform.controller.planning.addresses import Addresses
from hotplate.platform.controller.planning.ceiling import Ceiling
from hotplate.platform.controller.planning.inner_addresses import THIS_MACHINE
from hotplate.platform.controller.planning.instance_types import sizes
from hotplate.platform.controller.planning.tenancy import Tenancy
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.leftovers import end_builds
from hotplate.platform.processes.ports import reachable
from hotplate.platform.processes.role_state import role_states
from hotplate.platform.settings import Cpus, PlatformSettings
from hotplate.platform.store.records import Organization
from hotplate.platform.upkeep.agent_readers import AgentReaders
from hotplate.platform.upkeep.checks import OneAgent, checks
from hotplate.platform.upkeep.health import disks_of
from hotplate.serving.gateway.fleet.discovery import RENDEZVOUS, top
from hotplate.serving.replica.compile_cache import CompileCache
from hotplate.serving.replica.environments.builder import EnvironmentBuilder
from hotplate.serving.replica.environments.registry import EnvironmentRegistry
from hotplate.serving.replica.runtime import ApiAccess, BentoRuntime
from hotplate.serving.replica.secret_values import SecretSource

_OF_PROGRAMS = ("bin", "dev", "lib", "lib64", "proc", "sbin", "sys", "usr")
"""Folders of the machine's below which nothing can be hidden."""


async def local_node(
    settings: PlatformSettings,
    standby: StandbySettings,
    data: DataDir,
    agent_url: str,
    blobs: BlobStore,
    hubs: Hubs,
    environ: Mapping[str, str],
    secrets: SecretSource,
    api_access: ApiAccess,
    organizations: Sequence[Organization],
) -> Backend:
    """Put it together, and note in the data directory's events where walls are missing."""
    await end_builds(data)
    agent = AgentClient(agent_url, data.secret("cluster-token"))
    # A store of this machine alone has no other node to build for, and would hold a second copy.
    registry = EnvironmentRegistry(blobs, agent) if settings.blobs_url else None
    visible_gpus = environ.get("CUDA_VISIBLE_DEVICES")
    local = await assemble(_assembly(settings, standby, data, visible_gpus))
    isolation, supply = local.isolation, local.supply
    if isolation.missing:
        data.events.add("WallsRefused", _unwalled(isolation, settings))
    environments = EnvironmentBuilder(
        data.folder("environments"),
        local.builds,
        _packages(settings, data),
        shared=settings.trust_organizations,
        disk_reserve_bytes=settings.disk_reserve_bytes,
        limit_s=settings.build_timeout_s,
        registry=registry,
    )
    for organization in organizations:
        made_at = organization.created_at.timestamp()
        environments.adopt(organization.name, organization.owner, made_at)
    gpus = ", ".join(sorted(set(supply.gpu_names)))
    compiled = CompileCache(data.root / "compiled", blobs, agent, gpus)
    bentos = BentoRuntime(
        environments,
        agent,
        trees=data.folder("agent") / "trees",
        payload=data.folder("parts"),
        compiled=compiled,
        hubs=hubs,
        secrets=secrets,
        api_access=api_access,
        visible=None if isolation.refusal else _shown(settings),
    )
    engine, readers, asked = local.engine(bentos), AgentReaders(agent), OneAgent(agent)
    folders = [data.root, data.visible_folder("engine"), data.folder("environments")]
    rooms = [FreeSpace(folder, settings.disk_reserve_bytes) for folder in folders]

    async def holdings() -> Holdings:
        held = await asked.held()
        return {} if held is None else {local.machine.name: held}

    async def close() -> None:
        await engine.close()
        await bentos.close()
        local.close()
        await agent.close()

    return Backend(
        engine=engine,
        environments=environments,
        compiled=compiled,
        logs=engine.ended_logs,
        files=agent,
        sizes=sizes(supply.most, next(iter(supply.gpu_names), "")),
        ceiling=Ceiling(supply.most, supply.cpus_shared, supply.memory_note),
        memory_bytes=supply.most.memory_bytes,
        addresses=_addresses(settings),
        inner=THIS_MACHINE,
        tenancy=tenancy_of(isolation.missing, settings),
        unwalled=isolation.missing,
        described=str(local.machine),
        work=[readers.run],
        install_readers=readers.install,
        usage=engine.usage.read,
        holdings=holdings,
        checks=lambda gateways, store: checks(
            gateways, store, rooms, asked.answers, asked.troubles
        ),
        roles=lambda: [state.as_json() for state in role_states(data)],
        disks=lambda: disks_of(folders),
        close=close,
    )


def tenancy_of(unwalled: str, settings: PlatformSettings) -> Tenancy:
    """Which organizations may be served beside each other where walls are missing."""
    return Tenancy("" if settings.trust_organizations else unwalled)


def _addresses(settings: PlatformSettings) -> Addresses:
    files = (settings.tls_certificate, settings.tls_key)
    certificate, key = (str(Path(file).absolute()) if file else "" for file in files)
    scheme = "https" if certificate else "http"
    gateways = origin_of(scheme, reachable(settings.host).strip("[]"))
    return Addresses(settings.host, tls_certificate=certificate, tls_key=key, gateways=gateways)


def _unwalled(isolation: Isolation, settings: PlatformSettings) -> str:
    """What it means that replicas are not kept apart."""
    served = "every organization" if settings.trust_organizations else "one organization"
    means = "replicas cannot be fully isolated here"
    if isolation.refusal:
        means = (
            "replicas can read and change the platform's own files and each other's, like any "
            "program of this user, because replicas cannot be isolated here"
        )
    return (
        f"{means} ({isolation.missing}); deployments of {served} are served: 'hotplate doctor' "
        "says what is missing, and how to allow it"
    )


def _assembly(
    settings: PlatformSettings, standby: StandbySettings, data: DataDir, visible_gpus: str | None
) -> AssemblySettings:
    return AssemblySettings(
        engine_folder=data.visible_folder("engine"),
        environments_folder=data.folder("environments"),
        hidden=_hidden(settings, data),
        reads=settings.replica_reads,
        writes=settings.replica_writes,
        visible_gpus=visible_gpus,
        arena_bytes=settings.arena_bytes,
        cpu_overcommit=settings.cpu_overcommit if settings.cpus is Cpus.SHARE else None,
        build_memory_bytes=settings.build_memory_bytes,
        standby=standby,
    )


def _hidden(settings: PlatformSettings, data: DataDir) -> list[Path]:
    """The folders of which replicas see only what is theirs: ours, the files, the agent's view, and
    where gateways meet."""
    scheme, _, blobs = (settings.blobs_url or data.blobs_url).rpartition("://")
    stored = [Path(blobs).resolve()] if scheme in ("", "file") else []
    packages = _packages(settings, data).resolve()
    engine = data.visible_folder("engine").resolve().parent
    gateways = top(data.folder("gateway") / RENDEZVOUS).resolve()
    meeting = [] if gateways.is_relative_to(data.root) else [gateways]
    return [data.root, engine, *stored, packages, VIEWS, *meeting, *_key_folder(settings)]


def _key_folder(settings: PlatformSettings) -> list[Path]:
    """The folder with the keys of secrets, unless programs need what else is there."""
    file = settings.secret_keys_at
    if file is None:
        return []
    folder = file.parent.resolve()
    return [folder] if len(folder.parts) > 2 and folder.parts[1] not in _OF_PROGRAMS else []


def _shown(settings: PlatformSettings) -> list[Path]:
    """Of folders that are somebody's on this machine, those that replicas see."""
    return [Path(path) for path in (*settings.replica_reads, *settings.replica_writes)]


def _packages(settings: PlatformSettings, data: DataDir) -> Path:
    """Where builds keep what they download."""
    given = settings.package_cache
    return Path(given).expanduser().absolute() if given else data.root / "packages"
