"""The tables, as SQLAlchemy sees them; `migrations/` says how a database gets to them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class UtcDateTime(TypeDecorator[datetime]):
    """Moments in UTC: stored without a zone (SQLite has none), read back with it."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


NEVER_REUSE_IDS = {"sqlite_autoincrement": True}
"""Others hold these ids while the row goes; SQLite would give the highest one out again."""


def new_uid() -> str:
    return uuid4().hex


def utc_now() -> datetime:
    return datetime.now(UTC)


class Table(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it from the class
        datetime: UtcDateTime,
        dict[str, Any]: JSON,
        list[Any]: JSON,
        float: Double,
        str: Text,
        bytes: LargeBinary,
    }


class OrganizationRow(Table):
    __tablename__ = "organizations"
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(default=new_uid)
    name: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str] = mapped_column(default="")
    deleted_at: Mapped[datetime | None]
    """Since when it is torn down: it is gone for everybody, but its deployments still end."""
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class QuotaRow(Table):
    """What an organization may have; null = as much as it wants, as without a row."""

    __tablename__ = "quotas"
    organization_id: Mapped[int] = mapped_column(
        ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True
    )
    replicas: Mapped[float | None]
    gpus: Mapped[float | None]
    cpus: Mapped[float | None]
    memory_bytes: Mapped[float | None]
    standby: Mapped[float | None]
    weight: Mapped[float] = mapped_column(default=1.0)
    priority: Mapped[int] = mapped_column(default=3)
    organization: Mapped[OrganizationRow] = relationship(lazy="joined", innerjoin=True)


class UserRow(Table):
    """A person. Memberships say of which organizations."""

    __tablename__ = "users"
    __table_args__ = (UniqueConstraint("organization_id", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(default=new_uid)
    organization_id: Mapped[int] = mapped_column(ForeignKey("organizations.id"))
    """Where they came first, and act for when they sign in."""
    name: Mapped[str] = mapped_column(index=True, unique=True)
    email: Mapped[str]
    operator: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    organization: Mapped[OrganizationRow] = relationship(lazy="joined", innerjoin=True)


class MembershipRow(Table):
    __tablename__ = "memberships"
    organization_id: Mapped[int] = mapped_column(
        ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True
    )
    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    role: Mapped[str]
    email: Mapped[str] = mapped_column(default="")
    """As this organization knows it: another one's word about a person is not shown here."""
    last_seen_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    organization: Mapped[OrganizationRow] = relationship(lazy="joined")
    user: Mapped[UserRow] = relationship(lazy="joined")


class TokenRow(Table):
    """An API token; of its secret only the SHA-256."""

    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(default=new_uid)
    organization_id: Mapped[int] = mapped_column(
        ForeignKey("organizations.id", ondelete="CASCADE"), index=True, nullable=True
    )
    """Null only until the control plane starts, in rows that an older one has added."""
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    role: Mapped[str] = mapped_column(default="")
    """Of a token that is the organization's own; empty = its owner's, while a member."""
    operator: Mapped[bool] = mapped_column(default=False)
    name: Mapped[str]
    description: Mapped[str] = mapped_column(default="")
    digest: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[Any]]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    user: Mapped[UserRow] = relationship(lazy="joined", innerjoin=True)
    organization: Mapped[OrganizationRow] = relationship(lazy="joined", innerjoin=True)


class SignInRow(Table):
    """A browser that is signed in, or a link by which one may be; of either only the SHA-256."""

    __tablename__ = "sign_ins"
    digest: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    organization_id: Mapped[int] = mapped_column(ForeignKey("organizations.id", ondelete="CASCADE"))
    token_id: Mapped[int | None] = mapped_column(ForeignKey("tokens.id", ondelete="CASCADE"))
    """By which token it was made: it ends with it, and may no more."""
    is_link: Mapped[bool]
    """A link is good once; then it is gone and a browser's is there."""
    everywhere: Mapped[bool] = mapped_column(default=False)
    expires_at: Mapped[datetime]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class LoginCodeRow(Table):
    """`bentoml cloud login` in a browser: the code that the client waits with."""

    __tablename__ = "login_codes"
    digest: Mapped[str] = mapped_column(primary_key=True)
    token_id: Mapped[int | None] = mapped_column(ForeignKey("tokens.id", ondelete="CASCADE"))
    salt: Mapped[str] = mapped_column(default="")
    """The new token's secret is made from it and the code, which only the client has."""
    state: Mapped[str] = mapped_column(default="asked")
    expires_at: Mapped[datetime]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class KeyRow(Table):
    """A random key of this installation, e.g. the one that signs transfer URLs."""

    __tablename__ = "keys"
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[bytes]


class SecretRow(Table):
    """A secret of an organization, without its values."""

    __tablename__ = "secrets"
    __table_args__ = (UniqueConstraint("organization_id", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(default=new_uid)
    organization_id: Mapped[int] = mapped_column(ForeignKey("organizations.id", ondelete="CASCADE"))
    creator_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    name: Mapped[str]
    description: Mapped[str]
    type: Mapped[str]
    stage: Mapped[str]
    path: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)
    organization: Mapped[OrganizationRow] = relationship(lazy="joined", innerjoin=True)
    creator: Mapped[UserRow] = relationship(lazy="joined", innerjoin=True)


class SecretValueRow(Table):
    """One value of a secret, encrypted and bound to its organization, secret and key."""

    __tablename__ = "secret_values"
    __table_args__ = (UniqueConstraint("secret_id", "key"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    secret_id: Mapped[int] = mapped_column(ForeignKey("secrets.id", ondelete="CASCADE"))
    position: Mapped[int]
    """Among those of its secret."""
    key: Mapped[str]
    sub_path: Mapped[str]
    size_bytes: Mapped[int]
    version: Mapped[str] = mapped_column(default=new_uid)
    """Another one with each change of the value: what is made with a value is known by it."""
    key_id: Mapped[str] = mapped_column(index=True)
    """Of the key that it is encrypted with."""
    sealed: Mapped[bytes]


class RepositoryRow(Table):
    __tablename__ = "repositories"
    __table_args__ = (UniqueConstraint("organization_id", "kind", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(default=new_uid)
    organization_id: Mapped[int] = mapped_column(ForeignKey("organizations.id"))
    kind: Mapped[str]
    name: Mapped[str]
    description: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)


class ArtifactRow(Table):
    __tablename__ = "artifacts"
    __table_args__ = (UniqueConstraint("repository_id", "version"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(default=new_uid)
    repository_id: Mapped[int] = mapped_column(ForeignKey("repositories.id"))
    version: Mapped[str]
    description: Mapped[str]
    manifest: Mapped[dict[str, Any]]
    labels: Mapped[list[Any]]
    build_at: Mapped[str]
    upload_status: Mapped[str] = mapped_column(default="pending")
    upload_finished_reason: Mapped[str] = mapped_column(default="")
    files: Mapped[str] = mapped_column(default="")
    size_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)
    upload_started_at: Mapped[datetime | None]
    upload_finished_at: Mapped[datetime | None]
    repository: Mapped[RepositoryRow] = relationship(lazy="joined", innerjoin=True)


class UploadRow(Table):
    """Parts of a tar that are arriving; gone once they are unpacked."""

    __tablename__ = "uploads"
    id: Mapped[str] = mapped_column(primary_key=True, default=new_uid)
    artifact_id: Mapped[int] = mapped_column(
        ForeignKey("artifacts.id", ondelete="CASCADE"), index=True
    )
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    artifact: Mapped[ArtifactRow] = relationship(lazy="joined", innerjoin=True)


class DeploymentRow(Table):
    __tablename__ = "deployments"
    __table_args__ = (
        # A deleted deployment that is still being torn down does not hold its name. PostgreSQL's
        # index has the same condition, by its migration: to name it here would import that dialect.
        Index(
            "uq_deployments_name",
            "organization_id",
            "name",
            unique=True,
            sqlite_where=text("wanted <> 'deleted'"),
        ),
        NEVER_REUSE_IDS,
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(default=new_uid)
    organization_id: Mapped[int] = mapped_column(ForeignKey("organizations.id"))
    creator_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    name: Mapped[str]
    port: Mapped[int] = mapped_column(unique=True)
    wanted: Mapped[str]
    status: Mapped[str]
    reason: Mapped[str] = mapped_column(default="")
    labels: Mapped[list[Any]]
    least: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """What its `min_replicas` take of its organization's quota, by resource."""
    host: Mapped[str] = mapped_column(default="")
    parent_id: Mapped[int | None] = mapped_column(index=True)
    """The deployment of which it is a version, where that has a canary. It may be gone already."""
    canary: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """How requests are chosen for its versions (`store/canaries.py`); empty = there are none."""
    dev: Mapped[bool] = mapped_column(default=False)
    tree: Mapped[str] = mapped_column(default="")
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)
    organization: Mapped[OrganizationRow] = relationship(lazy="joined", innerjoin=True)
    creator: Mapped[UserRow] = relationship(lazy="joined", innerjoin=True)


def of_deployment() -> Mapped[int]:
    """The column of what belongs to a deployment and goes with it."""
    return mapped_column(ForeignKey("deployments.id", ondelete="CASCADE"), index=True)


class RevisionRow(Table):
    __tablename__ = "revisions"
    __table_args__ = (UniqueConstraint("deployment_id", "number"), NEVER_REUSE_IDS)
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(default=new_uid)
    deployment_id: Mapped[int] = mapped_column(ForeignKey("deployments.id", ondelete="CASCADE"))
    number: Mapped[int]
    config: Mapped[dict[str, Any]]
    bento_id: Mapped[int] = mapped_column(ForeignKey("artifacts.id"))
    outcome: Mapped[str]
    reason: Mapped[str] = mapped_column(default="")
    log_tail: Mapped[list[Any]] = mapped_column(default=list)
    ports: Mapped[dict[str, Any]] = mapped_column(default=dict)
    serving: Mapped[bool] = mapped_column(default=False)
    by: Mapped[str] = mapped_column(default="")
    """The name of whoever asked for it."""
    files: Mapped[str] = mapped_column(default="")
    paused: Mapped[bool] = mapped_column(default=False)
    progress: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """How far its roll-out has come."""
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    bento: Mapped[ArtifactRow] = relationship(lazy="joined", innerjoin=True)


class DecisionRow(Table):
    __tablename__ = "decisions"
    id: Mapped[int] = mapped_column(primary_key=True)
    deployment_id: Mapped[int] = of_deployment()
    at: Mapped[datetime]
    revision: Mapped[int]
    service: Mapped[str]
    replicas: Mapped[int]
    desired: Mapped[int]
    demand: Mapped[int]
    reason: Mapped[str]
    inputs: Mapped[dict[str, Any]] = mapped_column(server_default="{}")


class DemandRow(Table):
    __tablename__ = "demands"
    id: Mapped[int] = mapped_column(primary_key=True)
    deployment_id: Mapped[int] = of_deployment()
    at: Mapped[datetime]
    revision: Mapped[int]
    service: Mapped[str]
    arrived: Mapped[int]
    in_flight: Mapped[int]
    queued: Mapped[int]
    service_s: Mapped[float]
    ready: Mapped[int]
    starting: Mapped[int]


class EventRow(Table):
    __tablename__ = "events"
    id: Mapped[int] = mapped_column(primary_key=True)
    deployment_id: Mapped[int] = of_deployment()
    at: Mapped[datetime]
    kind: Mapped[str]
    message: Mapped[str]


class ColdStartRow(Table):
    __tablename__ = "cold_starts"
    id: Mapped[int] = mapped_column(primary_key=True)
    deployment_id: Mapped[int] = of_deployment()
    replica: Mapped[str] = mapped_column(unique=True)
    revision: Mapped[int]
    service: Mapped[str]
    created_at: Mapped[datetime]
    ready_at: Mapped[datetime | None]
    phases: Mapped[list[Any]]
    pool: Mapped[str] = mapped_column(default="")
    forked: Mapped[bool] = mapped_column(default=False)


class TaskRow(Table):
    """A task that was submitted. One whose deployment is gone has none, until it is swept."""

    __tablename__ = "tasks"
    id: Mapped[str] = mapped_column(primary_key=True)
    deployment_id: Mapped[int | None] = mapped_column(
        ForeignKey("deployments.id", ondelete="SET NULL"), index=True
    )
    path: Mapped[str]
    caller: Mapped[str] = mapped_column(default="")
    """The organization among its callers."""
    priority: Mapped[int]
    version: Mapped[str] = mapped_column(default="", server_default="")
    """The canary's version to which it was submitted; empty = `main`."""
    status: Mapped[str] = mapped_column(index=True)
    gateway: Mapped[str] = mapped_column(default="")
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    executed_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None] = mapped_column(index=True)
    input_head: Mapped[bytes]
    input_body: Mapped[bytes | None]
    input_bytes: Mapped[int] = mapped_column(BigInteger)
    input_part: Mapped[int]
    answer_head: Mapped[bytes] = mapped_column(default=b"")
    answer_body: Mapped[bytes | None]
    answer_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    answer_part: Mapped[int] = mapped_column(default=0)


class AuditRow(Table):
    """Names and not keys: a line outlives what it names."""

    __tablename__ = "audit"
    __table_args__ = NEVER_REUSE_IDS
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(index=True)
    actor: Mapped[str]
    token: Mapped[str]
    organization: Mapped[str] = mapped_column(index=True)
    action: Mapped[str]
    object: Mapped[str]
    outcome: Mapped[str]
    address: Mapped[str]
    request_id: Mapped[str]
    changes: Mapped[dict[str, Any]]
    count: Mapped[int] = mapped_column(default=1)
