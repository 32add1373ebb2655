"""The control plane's HTTP application, put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

from aiohttp import web
from prometheus_client import CollectorRegistry

from hotplate.cache.errors import CacheError
from hotplate.cache.store.blobs import BlobStore
from hotplate.machine.access.middleware import refuse_cross_site
from hotplate.platform.api.bentocloud.archives.deletions import DeletionRoutes
from hotplate.platform.api.bentocloud.archives.downloads import DownloadRoutes
from hotplate.platform.api.bentocloud.archives.transfers import Transfers
from hotplate.platform.api.bentocloud.archives.unpacking import Unpacking
from hotplate.platform.api.bentocloud.archives.uploads import UploadRoutes
from hotplate.platform.api.bentocloud.artifacts import ArtifactRoutes
from hotplate.platform.api.bentocloud.auth import Auth, answer_errors
from hotplate.platform.api.bentocloud.code_files import CodeFileRoutes
from hotplate.platform.api.bentocloud.deployment_source import DeploymentSource
from hotplate.platform.api.bentocloud.deployments import DeploymentRoutes
from hotplate.platform.api.bentocloud.hub_models import HubModels
from hotplate.platform.api.bentocloud.instance_types import InstanceTypeRoutes
from hotplate.platform.api.bentocloud.logins import LoginRoutes
from hotplate.platform.api.bentocloud.logs.pods import Pods
from hotplate.platform.api.bentocloud.logs.tail import Tail
from hotplate.platform.api.bentocloud.org_secrets import SecretRoutes
from hotplate.platform.api.bentocloud.repositories import RepositoryRoutes
from hotplate.platform.api.bentocloud.rollout_watchers import RolloutWatchers
from hotplate.platform.api.bentocloud.tokens import TokenRoutes
from hotplate.platform.api.hotplate.audit import AuditRoutes
from hotplate.platform.api.hotplate.calls import CallRoutes
from hotplate.platform.api.hotplate.costs import CostRoutes
from hotplate.platform.api.hotplate.deployments import DeploymentStatusRoutes
from hotplate.platform.api.hotplate.health import HealthRoutes
from hotplate.platform.api.hotplate.keys import KeyRoutes
from hotplate.platform.api.hotplate.models import Holdings, ModelRoutes, no_holdings
from hotplate.platform.api.hotplate.organizations import OrganizationRoutes
from hotplate.platform.api.hotplate.quotas import QuotaRoutes
from hotplate.platform.api.hotplate.rollouts import RolloutRoutes
from hotplate.platform.api.hotplate.series import SeriesRoutes
from hotplate.platform.api.hotplate.simulations import SimulationRoutes
from hotplate.platform.api.hotplate.totals import TotalsRoutes
from hotplate.platform.api.openapi import document
from hotplate.platform.api.web.passing_on import believe_passed
from hotplate.platform.api.web.request_metrics import RequestMetrics
from hotplate.platform.api.web.requests import BODY_S
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.dashboard.frames import FramePages, show_lost
from hotplate.platform.dashboard.pages import DeploymentPages
from hotplate.platform.dashboard.sign_in_pages import SignInPages
from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind

log = logging.getLogger("hotplate.api")

AUTH = web.AppKey("auth", Auth)
STATUS = web.AppKey("status", DeploymentStatusRoutes)


def make_app(
    store: Store,
    blobs: BlobStore,
    controller: ControllerApi,
    settings: ApiSettings,
    holdings: Callable[[], Awaitable[Holdings]] = no_holdings,
    metrics: RequestMetrics | None = None,
) -> web.Application:
    """Everything that the bentoml client calls, and our own routes beside it. `holdings` says what
    nodes have of files; `metrics` counts.

    The caller keeps the store and the blobs, and closes them after the application is cleaned up.
    """
    metrics = metrics or RequestMetrics(CollectorRegistry())
    auth = Auth(store, settings, controller.replica_with, metrics.refused_login)
    unpacking = Unpacking(store, blobs, settings.archive)
    transfers = Transfers(store, blobs, settings)
    source = DeploymentSource(
        store.artifacts, unpacking, HubModels(blobs, settings.hubs), settings.unpack_wait_s
    )
    app = web.Application(
        middlewares=[
            metrics.middleware(),
            believe_passed(settings.cluster_token),
            refuse_cross_site(settings.own),
            show_lost,
            answer_errors,
            auth.middleware(),
        ],
        client_max_size=settings.json_limit_bytes,
    )
    app[BODY_S] = settings.body_s
    app[AUTH] = auth
    app.add_routes(
        HealthRoutes(
            store, controller.ready.is_set, store.epoch, alone=bool(settings.deployments_url)
        ).routes()
    )
    app.add_routes(auth.routes())
    app.add_routes(document.routes())
    app.add_routes(transfers.routes())
    for kind in Kind:
        app.add_routes(RepositoryRoutes(kind, store.artifacts).routes())
        uploads = UploadRoutes(kind, store, blobs, unpacking, transfers, settings)
        app.add_routes(ArtifactRoutes(kind, store.artifacts, uploads.settled).routes())
        app.add_routes(uploads.routes())
        app.add_routes(DeletionRoutes(kind, store.artifacts, unpacking).routes())
        app.add_routes(DownloadRoutes(kind, store.artifacts, transfers).routes())
    watchers = RolloutWatchers(controller, settings)
    app.add_routes(
        DeploymentRoutes(store.deployments, source, controller, watchers, settings).routes()
    )
    app.add_routes(Pods(store.deployments, controller, watchers, settings).routes())
    app.add_routes(Tail(store.deployments, controller, watchers).routes())
    app.add_routes(TokenRoutes(store.tokens, controller).routes())
    app.add_routes(LoginRoutes(store.sign_ins, auth).routes())
    app.add_routes(SimulationRoutes(store, controller).routes())
    frames = FramePages(store, auth)
    app.add_routes(frames.routes())
    app.add_routes(SignInPages(store.sign_ins, auth, settings, frames.show).routes())
    app.add_routes(SecretRoutes(store.secrets, settings).routes())
    app.add_routes(CodeFileRoutes(store, blobs, controller, watchers, settings).routes())
    app.add_routes(InstanceTypeRoutes(controller).routes())
    app.add_routes(OrganizationRoutes(store, controller, settings).routes())
    app.add_routes(KeyRoutes(store.secrets).routes())
    app.add_routes(AuditRoutes(store.audit).routes())
    app.add_routes(QuotaRoutes(store.quotas, controller).routes())
    app.add_routes(RolloutRoutes(store, source, controller, watchers).routes())
    app[STATUS] = DeploymentStatusRoutes(store, controller, settings)
    app.add_routes(app[STATUS].routes())
    app.add_routes(TotalsRoutes(app[STATUS]).routes())
    calls = CallRoutes(store.deployments, controller)
    app.add_routes(calls.routes())
    app.add_routes(SeriesRoutes(store, controller.series).routes())
    app.add_routes(CostRoutes(store, controller.series).routes())
    app.add_routes(ModelRoutes(store.artifacts, blobs, holdings).routes())
    app.add_routes(DeploymentPages(store, auth, controller, settings, frames.show).routes())

    async def uploads_under_way(_: web.Application) -> AsyncIterator[None]:
        sweep = asyncio.create_task(_drop_old_uploads(store, unpacking, settings))
        yield
        sweep.cancel()
        await asyncio.wait({sweep})
        await unpacking.close()
        await calls.close()

    app.cleanup_ctx.append(uploads_under_way)
    return app


async def _drop_old_uploads(store: Store, unpacking: Unpacking, settings: ApiSettings) -> None:
    """Removes the parts of uploads that nobody goes on with, or that a kill left when it was done:
    at the start, and from time to time."""
    while True:
        try:
            before = datetime.now(UTC) - timedelta(seconds=settings.upload_life_s)
            for upload in await store.run(store.uploads.stale, before):
                if not unpacking.busy(upload.artifact.id):
                    await unpacking.drop(upload)
        except (CacheError, StoreFailed, OSError) as error:
            log.warning("parts of unfinished uploads stay until the next attempt: %s", error)
        await asyncio.sleep(settings.upload_sweep_s)
