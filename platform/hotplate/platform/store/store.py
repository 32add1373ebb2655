"""The store: everything that the control plane must not forget."""

from __future__ import annotations

from hotplate.platform.store.artifacts import Artifacts
from hotplate.platform.store.deployments import Deployments
from hotplate.platform.store.history import History
from hotplate.platform.store.identities import Identities
from hotplate.platform.store.quotas import Quotas
from hotplate.platform.store.tasks import Tasks
from hotplate.platform.store.uploads import Uploads


class Store(Deployments, Identities, Artifacts, Uploads, History, Tasks, Quotas):
    """One object with all of it. From asyncio: `await store.run(store.deployment, 7)`."""
