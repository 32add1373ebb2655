"""The control plane's process: API, controller and this node's engine, put together."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import replace
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from hotplate.autoscaler.bentoml_policy import policy_from
from hotplate.cache.client import AgentClient
from hotplate.cache.origins.hubs import Hubs, own_hub
from hotplate.cache.store.blobs import BlobStore
from hotplate.deploy.engine import Supply
from hotplate.deploy.quantities import resources_of
from hotplate.deploy.standbys import StandbySettings
from hotplate.machine import descriptors, heap
from hotplate.machine.access.own_hosts import OwnHosts
from hotplate.machine.free_space import FreeSpace
from hotplate.platform.api.bentocloud.deployments import public_url
from hotplate.platform.api.bentocloud.views import origin_of
from hotplate.platform.api.hotplate.environments import EnvironmentRoutes
from hotplate.platform.api.hotplate.garbage import GarbageRoutes
from hotplate.platform.api.hotplate.overview import OverviewRoutes
from hotplate.platform.api.hotplate.standbys import StandbyRoutes
from hotplate.platform.api.internal.docs import DocsRoutes
from hotplate.platform.api.internal.guarded import InternalRoutes
from hotplate.platform.api.internal.metrics import MetricsRoutes
from hotplate.platform.api.internal.tasks import TaskRoutes
from hotplate.platform.api.web.listener import ApiListener
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import AUTH, make_app
from hotplate.platform.controller.gateways.task_links import TaskLinks
from hotplate.platform.controller.interface import Subscribers
from hotplate.platform.controller.loop import Controller
from hotplate.platform.controller.memory_metrics import MemoryMetrics
from hotplate.platform.controller.metrics import ControllerMetrics
from hotplate.platform.controller.planning.ceiling import Ceiling
from hotplate.platform.controller.planning.instance_types import sizes
from hotplate.platform.controller.planning.routing import Addresses
from hotplate.platform.controller.planning.workloads import WorkloadRules
from hotplate.platform.controller.scaling.prometheus import Prometheus
from hotplate.platform.controller.standby_metrics import StandbyMetrics
from hotplate.platform.errors import CannotStart, Conflict, PortsExhausted
from hotplate.platform.instance_type import InstanceType
from hotplate.platform.leadership.candidate import Candidate, this_process
from hotplate.platform.leadership.metrics import LeadershipMetrics
from hotplate.platform.leadership.seat import Seat
from hotplate.platform.leadership.watchdog import begin_anew
from hotplate.platform.local_node import local_node, tenancy_of
from hotplate.platform.log_format import log_to_stderr
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.key_file import SECRET_KEYS, KeyFile
from hotplate.platform.processes.leftovers import end_builds
from hotplate.platform.processes.ports import is_everywhere, is_free, reachable
from hotplate.platform.processes.role_state import role_states
from hotplate.platform.settings import ImageCommands, PlatformSettings
from hotplate.platform.spec.replica_keys import ReplicaKeys
from hotplate.platform.spec.scopes import API, ENDPOINT, METRICS
from hotplate.platform.store.database import Database
from hotplate.platform.store.identities import ADMIN
from hotplate.platform.store.org_secrets import encrypt_anew
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import ORGANIZATION
from hotplate.platform.store.replica_secrets import StoredSecrets
from hotplate.platform.store.tokens import CALLERS
from hotplate.platform.store.tokens import METRICS as METRICS_TOKEN
from hotplate.platform.upkeep.agent_readers import AgentReaders
from hotplate.platform.upkeep.audit_sweep import forget_old
from hotplate.platform.upkeep.checks import checks
from hotplate.platform.upkeep.claim import KEY as INSTALLATION
from hotplate.platform.upkeep.claim import claim
from hotplate.platform.upkeep.collector import Collector, collect_for_ever
from hotplate.platform.upkeep.health import HealthMonitor, disks_of
from hotplate.platform.upkeep.sweeper import Sweeper
from hotplate.platform.waiting import until_elected
from hotplate.serving.replica.compile_cache import CompileCache

log = logging.getLogger("hotplate.control-plane")


def run(
    settings: PlatformSettings,
    standby: StandbySettings,
    types: Mapping[str, InstanceType],
    data: DataDir,
    agent_url: str,
    environ: Mapping[str, str],
) -> None:
    """Run until SIGTERM; replicas go on running. Raises `CannotStart`.

    `environ` says which GPUs are visible, and from which hub models come.
    """
    log_to_stderr()
    heap.keep_little()
    try:
        asyncio.run(serve(settings, standby, types, data, agent_url, environ))
    except OSError as error:
        raise CannotStart(f"control plane on {settings.host}:{settings.port}: {error}") from error


async def serve(
    settings: PlatformSettings,
    standby: StandbySettings,
    types: Mapping[str, InstanceType],
    data: DataDir,
    agent_url: str,
    environ: Mapping[str, str],
) -> None:
    """Serve the API and keep the deployments as the store wants them."""
    keys = KeyFile(settings.secret_keys_at or data.root / SECRET_KEYS)
    database = Database(settings.database_url or data.database_url)
    store = Store(database, _allocator(settings), keys)
    shown = _shown(settings, data, Hubs(settings.model_endpoints, own_hub(environ)))
    mine = this_process(f"http://{reachable(settings.host)}:{settings.port}", data.root)
    candidate = Candidate(store.leadership, mine, begin_anew)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    waited = await until_elected(candidate, store, shown, settings, stopped)
    if not candidate.acts:
        store.close()
        return
    store.database.epoch = candidate.epoch
    term = asyncio.create_task(candidate.keep(), name="term")
    seat = Seat(data.root / "acts.lock")
    await seat.take()
    await _open_secrets(store, keys)
    reserve_bytes = settings.disk_reserve_bytes
    blobs = BlobStore(settings.blobs_url or data.blobs_url, reserve_bytes)
    installation = store.identities.key(INSTALLATION).hex()[:32]
    named = store.artifacts.named_files
    await asyncio.to_thread(claim, blobs, installation, named, shared=bool(settings.blobs_url))
    await asyncio.to_thread(blobs.drop_unfinished)
    if not settings.blobs_url:
        await asyncio.to_thread(blobs.holds.end_removals)
    await end_builds(data)
    agent = AgentClient(agent_url, data.secret("cluster-token"))
    store.tokens.adopt()
    store.organizations.finish_deletions()
    keep_token(store, ADMIN, data.secret("admin-token"), API)
    keep_token(store, CALLERS, data.secret("endpoint-token"), ENDPOINT)
    keep_token(store, METRICS_TOKEN, data.secret("metrics-token"), METRICS)
    secrets = StoredSecrets(store.secrets)
    replica_keys = ReplicaKeys(data.secret("cluster-token"), _own_url(settings))
    node = await local_node(
        settings, standby, data, blobs, agent, shown.hubs, environ, secrets, replica_keys.variables
    )
    for organization in store.organizations.all():
        made_at = organization.created_at.timestamp()
        node.environments.adopt(organization.name, organization.owner, made_at)
    machine_bytes = node.supply.most.memory_bytes
    standbys = node.engine.standbys
    desk = StandbyRoutes(store.learnt, store.organizations, standbys, standby, machine_bytes)
    await desk.recall()
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(StandbyMetrics(standbys.views))
    registry.register(MemoryMetrics(node.engine.replicas))
    registry.register(LeadershipMetrics(candidate))
    prometheus = Prometheus(settings.prometheus_url)
    readers = AgentReaders(agent)
    controller = Controller(
        store,
        node.engine,
        replace(
            _rules(node.supply, shown, data.secret("cluster-token"), settings, types),
            inner=node.inner,
            tenancy=tenancy_of(node.unwalled, settings),
            keys=replica_keys,
        ),
        _addresses(settings),
        ControllerMetrics(registry),
        prometheus,
        Subscribers(notify=data.events.add, quotas_read=desk.allow, readers_read=readers.install),
    )
    app = make_app(store, blobs, controller, shown)
    lines = TaskLinks(store.tasks)
    tasks = TaskRoutes(store.tasks, blobs, lines, results_s=settings.task_results_s)
    sweeper = Sweeper(
        lambda: _in_use(controller, node.compiled),
        agent,
        node.environments,
        tasks,
        standbys,
        node.compiled,
        partial(_owners, store),
        unused_files_s=settings.unused_files_s,
    )
    collector = Collector(
        store,
        blobs,
        installation,
        lambda: _in_use(controller, node.compiled),
        node.environments,
        node.compiled,
        grace_s=settings.gc_grace_s,
        spare_environments=settings.spare_environments,
    )
    folders = [data.root, data.visible_folder("engine"), data.folder("environments")]
    rooms = [FreeSpace(folder, reserve_bytes) for folder in folders]
    health = HealthMonitor(checks(controller.gateways, agent, store, rooms), data.events)
    app.add_routes(
        OverviewRoutes(
            store.history,
            data.events,
            node.engine.capacity,
            roles=lambda: [state.as_json() for state in role_states(data)],
            disks=lambda: disks_of(folders),
            short=lambda: health.short,
            unwalled=node.unwalled,
        ).routes()
    )
    app.add_routes(desk.routes())
    app.add_routes(EnvironmentRoutes(store, node.environments).routes())
    app.add_routes(GarbageRoutes(collector, store.audit).routes())
    metrics = MetricsRoutes(
        data.secret("cluster-token"),
        app[AUTH].admit_bearer,
        registry,
        open_to_all=not settings.metrics_need_token,
    )
    app.add_routes(metrics.routes())
    internal = InternalRoutes(data.secret("cluster-token"))
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
        log.info("ready at %s:%s; this machine: %s", settings.host, settings.port, node.machine)
        await _until(
            stopped,
            controller.run(),
            sweeper.run(),
            readers.run(),
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
        await node.close()
        await agent.close()
        term.cancel()
        seat.leave()
        await candidate.give_up()
        store.close()


def _shown(settings: PlatformSettings, data: DataDir, hubs: Hubs) -> ApiSettings:
    return ApiSettings(
        advertise_host=_advertised(settings),
        scheme="https" if settings.tls_certificate else "http",
        own=OwnHosts(settings.host, settings.own_hosts),
        public_url=settings.public_url,
        trusted_proxies=settings.trusted_proxies,
        cluster_token=data.secret("cluster-token"),
        hubs=hubs,
    )


async def _open_secrets(store: Store, keys: KeyFile) -> None:
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


def _in_use(controller: Controller, compiled: CompileCache) -> Set[str] | None:
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
    supply: Supply,
    shown: ApiSettings,
    key: str,
    settings: PlatformSettings,
    types: Mapping[str, InstanceType],
) -> WorkloadRules:
    """`key` is the installation's: what is derived from it need not be kept."""
    return WorkloadRules(
        revisions_kept=settings.revisions_kept,
        refuse_commands=settings.image_commands is ImageCommands.REFUSE,
        dev_idle_s=settings.dev_idle_s,
        resources=resources_of,
        policy=policy_from,
        instance_types=types or sizes(supply.most, next(iter(supply.gpu_names), "")),
        namespace=shown.cluster,
        url=lambda deployment: public_url(deployment, shown),
        ceiling=Ceiling(supply.most, supply.cpus_shared, supply.memory_note),
        secret=lambda revision: hmac.digest(
            key.encode(), f"services of revision {revision.uid}".encode(), "sha256"
        ).hex(),
    )


def _addresses(settings: PlatformSettings) -> Addresses:
    files = (settings.tls_certificate, settings.tls_key)
    certificate, key = (str(Path(file).absolute()) if file else "" for file in files)
    return Addresses(settings.host, tls_certificate=certificate, tls_key=key)


def _own_url(settings: PlatformSettings) -> str:
    """Where replicas of this machine reach the API."""
    return f"{origin_of('http', reachable(settings.host))}:{settings.port}"


def _advertised(settings: PlatformSettings) -> str:
    """The host in deployments' URLs; empty where every address of the machine is listened on."""
    return settings.advertise_host or ("" if is_everywhere(settings.host) else settings.host)
