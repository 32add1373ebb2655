"""The store: everything that the control plane must not forget.

One `Database` (SQLite or PostgreSQL) lies under its parts, each of which has one subject:
`store.deployments.create(…)`. A part reads and writes its own rows (`tables`) in transactions and
returns immutable `records`, never rows; `deployment_records` joins a deployment with its latest and
its serving revision. A change of several subjects is still one transaction: a new deployment
reserves its quota and records its event through functions that take the session.

Every method blocks. From asyncio, calls go to the store's one thread, which also keeps the writes
in order: `await store.run(store.deployments.get, 7)`. A new table or column is a new file of
`migrations/versions`. Read `database` first, then `tables`, `records` and one of the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from hotplate.platform.store.artifacts import Artifacts
from hotplate.platform.store.audit import Audit
from hotplate.platform.store.code_files import CodeFiles
from hotplate.platform.store.costs import Costs
from hotplate.platform.store.database import Database
from hotplate.platform.store.deployment_ports import AllocatePort, lowest_free_port
from hotplate.platform.store.deployments import Deployments
from hotplate.platform.store.history import History
from hotplate.platform.store.identities import Identities
from hotplate.platform.store.keyring import KeysInMemory, KeySource
from hotplate.platform.store.leadership import Leadership
from hotplate.platform.store.learnt import LearntValues
from hotplate.platform.store.org_secrets import Secrets
from hotplate.platform.store.organizations import Organizations
from hotplate.platform.store.platform_events import PlatformEvents
from hotplate.platform.store.quotas import Quotas
from hotplate.platform.store.revisions import Revisions
from hotplate.platform.store.series import DeploymentSeries, OrganizationSeries
from hotplate.platform.store.sign_ins import SignIns
from hotplate.platform.store.tables import utc_now
from hotplate.platform.store.tasks import Tasks
from hotplate.platform.store.tokens import Tokens
from hotplate.platform.store.uploads import Uploads

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """All parts of one database."""

    def __init__(
        self,
        database: Database,
        allocate_port: AllocatePort = lowest_free_port,
        keys: KeySource | None = None,
        *,
        share_address: bool = False,
    ) -> None:
        """The store closes the database. Without `keys` nobody can read its secrets later. With
        `share_address` deployments are told apart by host names."""
        self.database = database
        self.audit = Audit(database)
        self.identities = Identities(database)
        self.organizations = Organizations(database)
        self.tokens = Tokens(database)
        self.sign_ins = SignIns(database, self.tokens)
        self.quotas = Quotas(database)
        self.secrets = Secrets(database, keys or KeysInMemory())
        self.artifacts = Artifacts(database)
        self.uploads = Uploads(database)
        self.deployments = Deployments(database, allocate_port, share_address=share_address)
        self.revisions = Revisions(database, allocate_port)
        self.code_files = CodeFiles(database)
        self.history = History(database)
        self.platform_events = PlatformEvents(database)
        self.series = DeploymentSeries(database)
        self.organization_series = OrganizationSeries(database)
        self.costs = Costs(database)
        self.tasks = Tasks(database)
        self.learnt = LearntValues(database)
        self.leadership = Leadership(database)

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in the store's thread, as `Database.run` does."""
        return await self.database.run(call, *args, **kwargs)

    def epoch(self) -> int:
        """The epoch in which this process acts; 0 = it does not."""
        return self.database.epoch or 0

    def check(self) -> None:
        """After a transaction that failed, write something. Raises StoreFailed while that fails."""
        if self.database.failed:
            self.learnt.put("check", utc_now().isoformat())
            self.database.failed = False

    def close(self) -> None:
        """Wait for the running call, then close the database."""
        self.database.close()
