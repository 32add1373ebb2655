"""The control plane's process: API, controller and what they stand on, put together."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from hotplate.autoscaler.bentoml_policy import policy_from
from hotplate.cache.origins.hubs import Hubs, own_hub
from hotplate.cache.store.blobs import BlobStore
from hotplate.deploy.errors import ClusterUnreachable
from hotplate.deploy.quantities import resources_of
from hotplate.deploy.standbys import StandbySettings
from hotplate.machine import descriptors, heap
from hotplate.machine.access.own_hosts import OwnHosts
from hotplate.platform.api.bentocloud.deployments import public_url
from hotplate.platform.api.bentocloud.views import origin_of
from hotplate.platform.api.hotplate.environments import EnvironmentRoutes
from hotplate.platform.api.hotplate.garbage import GarbageRoutes
from hotplate.platform.api.hotplate.overview import OverviewRoutes
from hotplate.platform.api.hotplate.standbys import StandbyRoutes
from hotplate.platform.api.hotplate.stream import StreamRoutes
from hotplate.platform.api.internal.docs import DocsRoutes
from hotplate.platform.api.internal.guarded import InternalRoutes
from hotplate.platform.api.internal.metrics import MetricsRoutes
from hotplate.platform.api.internal.tasks import TaskRoutes
from hotplate.platform.api.web.listener import ApiListener
from hotplate.platform.api.web.request_metrics import RequestMetrics
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import AUTH, STATUS, make_app
from hotplate.platform.backend import Backend, KeptCode, KeptEvents
from hotplate.platform.cluster.settings import ClusterTable
from hotplate.platform.controller.gateways.task_links import TaskLinks
from hotplate.platform.controller.interface import Subscribers
from hotplate.platform.controller.loop import Controller
from hotplate.platform.controller.memory_metrics import MemoryMetrics
from hotplate.platform.controller.metrics import ControllerMetrics
from hotplate.platform.controller.planning.workloads import WorkloadRules
from hotplate.platform.controller.quota_metrics import QuotaMetrics
from hotplate.platform.controller.scaling.prometheus import Prometheus
from hotplate.platform.controller.standby_metrics import StandbyMetrics
from hotplate.platform.errors import CannotStart, Conflict, PortsExhausted
from hotplate.platform.instance_type import InstanceType
from hotplate.platform.leadership.candidate import Candidate, this_process
from hotplate.platform.leadership.metrics import LeadershipMetrics
from hotplate.platform.leadership.seat import Seat
from hotplate.platform.leadership.watchdog import begin_anew
from hotplate.platform.local_node import local_node
from hotplate.platform.log_format import log_to_stderr
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.key_file import SECRET_KEYS, KeyFile
from hotplate.platform.processes.ports import is_everywhere, is_free, reachable
from hotplate.platform.series.metrics import GpuSecondsMetrics
from hotplate.platform.settings import ImageCommands, PlatformSettings
from hotplate.platform.spec.replica_keys import ReplicaKeys
from hotplate.platform.spec.scopes import API, ENDPOINT, METRICS
from hotplate.platform.store.database import Database
from hotplate.platform.store.deployment_ports import count_up
from hotplate.platform.store.identities import ADMIN
from hotplate.platform.store.learnt import LearntValues
from hotplate.platform.store.org_secrets import encrypt_anew
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import ORGANIZATION
from hotplate.platform.store.replica_secrets import StoredSecrets
from hotplate.platform.store.sealed_keys import SealedKeys
from hotplate.platform.store.tokens import CALLERS
from hotplate.platform.store.tokens import METRICS as METRICS_TOKEN
from hotplate.platform.store.transaction_times import transaction_times
from hotplate.platform.stored_events import StoredEvents
from hotplate.platform.upkeep.audit_sweep import forget_old
from hotplate.platform.upkeep.claim import KEY as INSTALLATION
from hotplate.platform.upkeep.claim import claim
from hotplate.platform.upkeep.collector import Collector, collect_for_ever
from hotplate.platform.upkeep.health import HealthMonitor
from hotplate.platform.upkeep.health_metrics import HealthMetrics
from hotplate.platform.upkeep.sweeper import Sweeper
from hotplate.platform.waiting import until_elected

log = logging.getLogger("hotplate.control-plane")


@dataclass(frozen=True)
class Equipment:
    """All that a control plane is started with."""

    settings: PlatformSettings
    standby: StandbySettings
    types: Mapping[str, InstanceType]
    """The instance types that the operator offers; empty = those of the backend."""
    data: DataDir
    environ: Mapping[str, str]
    """Says which GPUs are visible, from which hub models come, and where packages do."""
    agent_url: str = ""
    """Of this machine's agent; empty on a cluster."""
    cluster: ClusterTable | None = None
    """None = this machine."""
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By name, those that are not the data directory's."""

    def token(self, name: str) -> str:
        return self.tokens.get(name) or self.data.secret(name)

    @property
    def share_address(self) -> bool:
        """Whether all deployments are called at one address."""
        return self.cluster is not None


def run(given: Equipment) -> None:
    """Run until SIGTERM; replicas go on running. Raises `CannotStart`."""
    log_to_stderr()
    heap.keep_little()
    settings = given.settings
    try:
        asyncio.run(serve(given))
    except (OSError, ClusterUnreachable) as error:
        raise CannotStart(f"control plane on {settings.host}:{settings.port}: {error}") from error


async def serve(given: Equipment) -> None:
    """Serve the API and keep the deployments as the store wants them."""
    settings, data = given.settings, given.data
    registry = CollectorRegistry()
    requests = RequestMetrics(registry)
    database = Database(settings.database_url or data.database_url, transaction_times(registry))
    keys = _keys(given, database)
    allocate = count_up if given.share_address else _allocator(settings)
    store = Store(database, allocate, keys, share_address=given.share_address)
    shown = _shown(given)
    mine = this_process(f"http://{reachable(settings.host)}:{settings.port}", data.root)
    candidate = Candidate(store.leadership, mine, begin_anew)
    registry.register(LeadershipMetrics(candidate))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    waited = await until_elected(candidate, store, shown, settings, stopped, registry, requests)
    if not candidate.acts:
        store.close()
        return
    store.database.epoch = candidate.epoch
    term = asyncio.create_task(candidate.keep(), name="term")
    seat = Seat(data.root / "acts.lock")
    await seat.take()
    await _open_secrets(store, keys)
    blobs = BlobStore(settings.blobs_url or data.blobs_url, settings.disk_reserve_bytes)
    installation = store.identities.key(INSTALLATION).hex()[:32]
    named = store.artifacts.named_files
    await asyncio.to_thread(claim, blobs, installation, named, shared=bool(settings.blobs_url))
    await asyncio.to_thread(blobs.drop_unfinished)
    if not settings.blobs_url:
        await asyncio.to_thread(blobs.holds.end_removals)
    store.tokens.adopt()
    store.organizations.finish_deletions()
    keep_token(store, ADMIN, given.token("admin-token"), API)
    if given.cluster is None:  # on a cluster nobody could read what was made here
        keep_token(store, CALLERS, data.secret("endpoint-token"), ENDPOINT)
        keep_token(store, METRICS_TOKEN, data.secret("metrics-token"), METRICS)
    cluster_token = given.token("cluster-token")
    events: KeptEvents = data.events if given.cluster is None else StoredEvents(store)
    replica_keys = ReplicaKeys(cluster_token, _own_url(given))
    backend = await _backend(given, store, blobs, shown.hubs, replica_keys)
    standbys = backend.engine.standbys
    desk = StandbyRoutes(
        store.learnt, store.organizations, standbys, given.standby, backend.memory_bytes
    )
    await desk.recall()
    registry.register(StandbyMetrics(standbys.views))
    registry.register(MemoryMetrics(backend.engine.replicas))
    prometheus = Prometheus(settings.prometheus_url)
    controller = Controller(
        store,
        backend.engine,
        _rules(given, backend, shown, replica_keys),
        backend.addresses,
        ControllerMetrics(registry),
        prometheus,
        Subscribers(
            notify=events.add, quotas_read=desk.allow, readers_read=backend.install_readers
        ),
        backend.usage,
    )
    registry.register(GpuSecondsMetrics(controller.series.gpu_s))
    registry.register(
        QuotaMetrics(
            lambda: controller.states.allocations.quotas,
            controller.usage,
            lambda: controller.tokens.ends,
            lambda: datetime.now(UTC).timestamp(),
        )
    )
    app = make_app(store, blobs, controller, shown, backend.holdings, requests)
    lines = TaskLinks(store.tasks, may_go_on=backend.may_go_on)
    tasks = TaskRoutes(store.tasks, blobs, lines, results_s=settings.task_results_s)
    sweeper = Sweeper(
        lambda: _in_use(controller, backend.compiled),
        backend.files,
        backend.environments,
        tasks,
        standbys,
        (backend.compiled, backend.logs),
        partial(_owners, store),
        unused_files_s=settings.unused_files_s,
    )
    collector = Collector(
        store,
        blobs,
        installation,
        lambda: _in_use(controller, backend.compiled),
        backend.environments,
        backend.compiled,
        grace_s=settings.gc_grace_s,
        spare_environments=settings.spare_environments,
    )
    health = HealthMonitor(backend.checks(controller.gateways, store), events.add, backend.refusals)
    registry.register(HealthMetrics(health.failing, backend.disks, settings.tls_certificate))
    overview = OverviewRoutes(
        store.history,
        events,
        backend.engine.capacity,
        roles=backend.roles,
        disks=backend.disks,
        short=lambda: health.short,
        unwalled=backend.unwalled,
        gpus=controller.series.gpus,
    )
    app.add_routes(overview.routes())
    StreamRoutes(store.deployments, app[AUTH], controller, app[STATUS], overview, shown).add_to(app)
    app.add_routes(desk.routes())
    app.add_routes(EnvironmentRoutes(store, backend.environments).routes())
    app.add_routes(GarbageRoutes(collector, store.audit).routes())
    metrics = MetricsRoutes(
        cluster_token,
        app[AUTH].admit_bearer,
        registry,
        open_to_all=not settings.metrics_need_token,
    )
    app.add_routes(metrics.routes())
    internal = InternalRoutes(cluster_token)
    app.add_routes(
        internal.routes(
            gateway=controller.gateways.handle,
            shutdown=partial(controller.shutdown, settings.drain_s),
            others=(*tasks.routes(), *DocsRoutes(store.tasks, blobs).routes()),
        )
    )
    descriptors.allow_many()
    descriptors.say_when_short(asyncio.get_running_loop(), log)
    listener = waited or ApiListener(app)
    watching = asyncio.create_task(health.run(), name="health")
    try:
        if waited is None:
            await listener.start(settings.host, settings.port)
        else:
            await listener.switch_to(app)
        log.info("ready at %s:%s; %s", settings.host, settings.port, backend.described)
        await _until(
            stopped,
            controller.run(),
            controller.series.run(),
            sweeper.run(),
            *(work() for work in backend.work),
            collect_for_ever(collector, settings.gc_period_s),
            forget_old(store.audit, settings.audit_days),
        )
        await listener.stop()
        await lines.close()
        await controller.gateways.close()
    finally:
        watching.cancel()
        await listener.close()
        await prometheus.close()
        await backend.close()
        await events.finish()
        term.cancel()
        seat.leave()
        await candidate.give_up()
        store.close()


def _keys(given: Equipment, database: Database) -> KeyFile | SealedKeys:
    """Where the keys of secrets are kept: on a cluster no disk is ours for good."""
    file = given.settings.secret_keys_at
    if given.cluster is not None and file is None:
        return SealedKeys(LearntValues(database), given.token("cluster-token"))
    return KeyFile(file or given.data.root / SECRET_KEYS)


async def _backend(
    given: Equipment, store: Store, blobs: BlobStore, hubs: Hubs, replica_keys: ReplicaKeys
) -> Backend:
    secrets = StoredSecrets(store.secrets)
    if given.cluster is None:
        return await local_node(
            given.settings,
            given.standby,
            given.data,
            given.agent_url,
            blobs,
            hubs,
            given.environ,
            secrets,
            replica_keys.variables,
            store.organizations.all(),
        )
    # It needs packages that one machine does without.
    from hotplate.platform.cluster.assembly import cluster_backend

    return await cluster_backend(
        given.cluster,
        given.settings,
        given.data,
        store,
        blobs,
        hubs,
        given.environ,
        secrets,
        replica_keys.variables,
        given.token("cluster-token"),
        own_types=bool(given.types),
    )


def _shown(given: Equipment) -> ApiSettings:
    settings, cluster = given.settings, given.cluster
    return ApiSettings(
        advertise_host=_advertised(settings),
        deployments_url="" if cluster is None else cluster.url,
        scheme="https" if settings.tls_certificate else "http",
        own=OwnHosts(settings.host, settings.own_hosts),
        public_url=settings.public_url,
        trusted_proxies=settings.trusted_proxies,
        cluster_token=given.token("cluster-token"),
        hubs=Hubs(settings.model_endpoints, own_hub(given.environ)),
    )


async def _open_secrets(store: Store, keys: KeyFile | SealedKeys) -> None:
    """Have the keys of all secrets, and go on with a change of them that was cut. Raises
    CannotStart."""
    keys.begin(store.secrets.encrypted())
    store.secrets.check_keys()
    await encrypt_anew(store.secrets)


async def _until(stopped: asyncio.Event, *work: Awaitable[None]) -> None:
    """Run all of `work` until the event is set; its first failure is ours."""
    working = asyncio.gather(*work)
    waiting = asyncio.create_task(stopped.wait())
    waiting.add_done_callback(lambda _: working.cancel())
    with contextlib.suppress(asyncio.CancelledError):
        await working
    waiting.cancel()


def _in_use(controller: Controller, compiled: KeptCode) -> Set[str] | None:
    """All manifests that are to stay; None while that is not known."""
    wanted = controller.manifests()
    return None if wanted is None else wanted | compiled.manifests()


async def _owners(store: Store) -> Set[str]:
    organizations = await store.run(store.organizations.all)
    return {organization.owner for organization in organizations}


def _allocator(settings: PlatformSettings) -> Callable[[set[int]], int]:
    first, last = settings.port_range()

    def allocate(taken: set[int]) -> int:
        for port in range(first, last + 1):
            if port not in taken and is_free(settings.host, port):
                return port
        raise PortsExhausted(
            f"deployment_ports {first}-{last}: all are taken; delete a deployment or widen it"
        )

    return allocate


def keep_token(store: Store, name: str, secret: str, scope: str) -> None:
    """Make the operator's token good, and the one that it replaces no longer. Raises CannotStart
    where it is good for something else."""
    admin = store.identities.ensure_user(ORGANIZATION, ADMIN, f"{ADMIN}@localhost")
    store.identities.ensure_operator(admin)
    current = store.tokens.find_token(secret)
    for token in store.tokens.tokens(admin.organization.id):
        mine = token.name == name and token.user.id == admin.id
        if mine and (current is None or token.id != current.id):
            store.tokens.revoke_token(admin.organization.id, token.uid)
    try:
        store.tokens.add_token(admin, name, secret, (scope,), operator=True)
    except Conflict as error:
        raise CannotStart(str(error)) from error


def _rules(
    given: Equipment, backend: Backend, shown: ApiSettings, replica_keys: ReplicaKeys
) -> WorkloadRules:
    """The cluster's token is the installation's: what is derived from it need not be kept."""
    settings, key = given.settings, given.token("cluster-token").encode()
    return WorkloadRules(
        revisions_kept=settings.revisions_kept,
        refuse_commands=settings.image_commands is ImageCommands.REFUSE,
        dev_idle_s=settings.dev_idle_s,
        resources=resources_of,
        policy=policy_from,
        instance_types=given.types or backend.sizes,
        namespace=shown.cluster,
        url=lambda deployment: public_url(deployment, shown),
        ceiling=backend.ceiling,
        inner=backend.inner,
        tenancy=backend.tenancy,
        keys=replica_keys,
        secret=lambda revision: hmac.digest(
            key, f"services of revision {revision.uid}".encode(), "sha256"
        ).hex(),
    )


def _own_url(given: Equipment) -> str:
    """Where replicas reach the API."""
    settings, cluster = given.settings, given.cluster
    if cluster is None:
        return f"{origin_of('http', reachable(settings.host))}:{settings.port}"
    return f"http://hotplate-control-plane.{cluster.release}.svc:{settings.port}"


def _advertised(settings: PlatformSettings) -> str:
    """The host in deployments' URLs; empty where every address of the machine is listened on."""
    return settings.advertise_host or ("" if is_everywhere(settings.host) else settings.host)
