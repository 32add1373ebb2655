"""A Kubernetes cluster as what a control plane stands on: the engine, and what makes bentos pods.

Nothing here is this machine's but a folder for what may be lost: descriptions of bentos, and the
output of builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from hotplate.cache.origins.hubs import Hubs
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.volumes.ticket import key_of
from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.builds.jobs import ClusterBuildJobs
from hotplate.deploy.cluster.builds.spec import BuildSettings
from hotplate.deploy.cluster.engine import KubernetesEngine
from hotplate.deploy.cluster.settings import ClusterSettings
from hotplate.deploy.workload import Workload
from hotplate.machine.free_space import FreeSpace
from hotplate.platform.backend import Backend
from hotplate.platform.cluster.addresses import ServiceNames, cluster_addresses
from hotplate.platform.cluster.kept import KeptByJobs, NotKept
from hotplate.platform.cluster.node_sizes import NodeSizes, selector_of
from hotplate.platform.cluster.release_pods import ReleasePods
from hotplate.platform.cluster.settings import ENDLESS, ClusterTable
from hotplate.platform.cluster.tenants import KnownOrganizations
from hotplate.platform.controller.planning.ceiling import Ceiling
from hotplate.platform.controller.planning.tenancy import ISOLATED
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.series.recorder import nothing_known
from hotplate.platform.settings import PlatformSettings
from hotplate.platform.store.parts import Store
from hotplate.platform.upkeep.checks import checks
from hotplate.platform.upkeep.health import PartRefusals
from hotplate.serving.replica.inherited import for_pod_build
from hotplate.serving.replica.pods.bentos import Bentos
from hotplate.serving.replica.pods.job_environments import JobEnvironments
from hotplate.serving.replica.pods.runtime import ApiAccess, BentoPodRuntime
from hotplate.serving.replica.pods.settings import EnvironmentSettings
from hotplate.serving.replica.secret_values import SecretSource

REMEDY = "see the pods of the gateway"


async def cluster_backend(
    table: ClusterTable,
    settings: PlatformSettings,
    data: DataDir,
    store: Store,
    blobs: BlobStore,
    hubs: Hubs,
    environ: Mapping[str, str],
    secrets: SecretSource,
    api_access: ApiAccess,
    cluster_token: str,
    *,
    own_types: bool,
) -> Backend:
    """Put it together; `own_types`: the operator offers instance types, and not the nodes' sizes.
    Raises `ClusterUnreachable`."""
    api = await ClusterApi.connect()
    ticket_key = key_of(cluster_token)
    builds = _builds(table, settings)
    jobs = ClusterBuildJobs(api, builds, data.folder("builds"))
    environments = JobEnvironments(
        blobs,
        jobs,
        ticket_key,
        EnvironmentSettings(
            table.release,
            table.runtimes,
            for_pod_build(environ),
            memory_bytes=builds.memory_bytes,
            shared=settings.trust_organizations,
        ),
    )
    runtime = BentoPodRuntime(
        Bentos(blobs, data.folder("bentos"), hubs),
        environments,
        ticket_key,
        secrets=secrets,
        node_selector=partial(_node_selector, table, own_types),
        tolerations=table.tolerations,
        api_access=api_access,
        pull_policy=table.pull_policy,
        pull_secrets=table.pull_secrets,
    )
    organizations = KnownOrganizations(store, api, table.release)
    await organizations.read()
    engine = KubernetesEngine(
        api,
        runtime,
        organizations.names,
        ClusterSettings(
            release=table.release, bounds=table.bounds, pull_secrets=table.pull_secrets
        ),
    )
    release = ReleasePods(api, table.release, cluster_token)
    room = FreeSpace(data.root, settings.disk_reserve_bytes)

    async def close() -> None:
        await release.close()
        await environments.close()
        await engine.close()

    release.start()
    return Backend(
        engine=engine,
        environments=KeptByJobs(environments, blobs),
        compiled=NotKept(),
        logs=NotKept(),
        files=NotKept(),
        sizes=NodeSizes(engine.capacity),
        ceiling=Ceiling(table.bounds or ENDLESS),
        memory_bytes=0,
        addresses=cluster_addresses(table.url, table.release),
        inner=ServiceNames(table.release),
        tenancy=ISOLATED,
        unwalled="",
        described=f"the cluster's release '{table.release}'",
        work=[jobs.run, organizations.run],
        install_readers=release.install_readers,
        usage=nothing_known,
        holdings=release.holdings,
        checks=lambda gateways, store: checks(
            gateways, store, [room], release.lost_agents, release.agent_troubles, REMEDY
        ),
        refusals=[PartRefusals("VolumeRefused", release.refused_volumes)],
        roles=release.roles,
        disks=list,
        close=close,
        may_go_on=release.may_go_on,
    )


def _builds(table: ClusterTable, settings: PlatformSettings) -> BuildSettings:
    given = BuildSettings(
        release=table.release,
        timeout_s=settings.build_timeout_s,
        node_selector=table.node_selector,
        tolerations=table.tolerations,
        pull_policy=table.pull_policy,
        pull_secrets=table.pull_secrets,
    )
    if settings.build_memory_bytes:
        return replace(given, memory_bytes=settings.build_memory_bytes)
    return given


def _node_selector(table: ClusterTable, own_types: bool, workload: Workload) -> Mapping[str, str]:
    """Where its pods may be: as all may, and as its instance type says."""
    named = workload.instance_type
    of_type = table.instance_selectors.get(named, {}) if own_types else selector_of(named)
    return {**table.node_selector, **of_type}
