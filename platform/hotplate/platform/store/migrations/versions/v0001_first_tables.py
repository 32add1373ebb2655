"""First tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
compatible = False

TABLES = (
    "organizations",
    "users",
    "tokens",
    "keys",
    "repositories",
    "artifacts",
    "uploads",
    "deployments",
    "revisions",
    "decisions",
    "events",
    "cold_starts",
    "learnt",
)
"""Each after those that it names."""


def upgrade() -> None:
    _identities()
    _artifacts()
    _deployments()
    _history()


def downgrade() -> None:
    for name in reversed(TABLES):
        op.drop_table(name)


def _identities() -> None:
    op.create_table("organizations", _id(), _text("uid"), _text("name", unique=True), _at())
    op.create_table(
        "users",
        _id(),
        _text("uid"),
        _owner("organization_id", "organizations.id"),
        _text("name"),
        _text("email"),
        _at(),
        sa.UniqueConstraint("organization_id", "name"),
    )
    op.create_table(
        "tokens",
        _id(),
        _text("uid"),
        _owner("user_id", "users.id", cascade=True, index=True),
        _text("name"),
        _text("digest", unique=True),
        _json("scopes"),
        _at("expires_at", nullable=True),
        _at(),
    )
    op.create_table(
        "keys",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("value", sa.LargeBinary(), nullable=False),
    )


def _artifacts() -> None:
    op.create_table(
        "repositories",
        _id(),
        _text("uid"),
        _owner("organization_id", "organizations.id"),
        _text("kind"),
        _text("name"),
        _text("description"),
        _at(),
        _at("updated_at"),
        sa.UniqueConstraint("organization_id", "kind", "name"),
    )
    op.create_table(
        "artifacts",
        _id(),
        _text("uid"),
        _owner("repository_id", "repositories.id"),
        _text("version"),
        _text("description"),
        _json("manifest"),
        _json("labels"),
        _text("build_at"),
        _text("upload_status"),
        _text("upload_finished_reason"),
        _text("files"),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        _at(),
        _at("updated_at"),
        _at("upload_started_at", nullable=True),
        _at("upload_finished_at", nullable=True),
        sa.UniqueConstraint("repository_id", "version"),
    )
    op.create_table(
        "uploads",
        sa.Column("id", sa.Text(), primary_key=True),
        _owner("artifact_id", "artifacts.id", cascade=True, index=True),
        _at(),
    )


def _deployments() -> None:
    op.create_table(
        "deployments",
        _id(),
        _text("uid"),
        _owner("organization_id", "organizations.id"),
        _owner("creator_id", "users.id"),
        _text("name"),
        sa.Column("port", sa.Integer(), nullable=False, unique=True),
        _text("wanted"),
        _text("status"),
        _text("reason"),
        _json("labels"),
        _at(),
        _at("updated_at"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_deployments_name",
        "deployments",
        ["organization_id", "name"],
        unique=True,
        sqlite_where=sa.text("wanted <> 'deleted'"),
        postgresql_where=sa.text("wanted <> 'deleted'"),
    )
    op.create_table(
        "revisions",
        _id(),
        _text("uid"),
        _owner("deployment_id", "deployments.id", cascade=True),
        _number("number"),
        _json("config"),
        _owner("bento_id", "artifacts.id"),
        _text("outcome"),
        _text("reason"),
        _json("log_tail"),
        _json("ports"),
        sa.Column("serving", sa.Boolean(), nullable=False),
        _at(),
        sa.UniqueConstraint("deployment_id", "number"),
        sqlite_autoincrement=True,
    )


def _history() -> None:
    op.create_table(
        "decisions",
        _id(),
        _owner("deployment_id", "deployments.id", cascade=True, index=True),
        _at("at"),
        _number("revision"),
        _text("service"),
        _number("replicas"),
        _number("desired"),
        _number("demand"),
        _text("reason"),
    )
    op.create_table(
        "events",
        _id(),
        _owner("deployment_id", "deployments.id", cascade=True, index=True),
        _at("at"),
        _text("kind"),
        _text("message"),
    )
    op.create_table(
        "cold_starts",
        _id(),
        _owner("deployment_id", "deployments.id", cascade=True, index=True),
        _text("replica", unique=True),
        _number("revision"),
        _text("service"),
        _at(),
        _at("ready_at", nullable=True),
        _json("phases"),
    )
    op.create_table("learnt", sa.Column("key", sa.Text(), primary_key=True), _json("value"))


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer(), primary_key=True)


def _text(name: str, unique: bool | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, unique=unique)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=False)


def _json(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.JSON(), nullable=False)


def _at(name: str = "created_at", nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(), nullable=nullable)


def _owner(name: str, target: str, cascade: bool = False, index: bool = False) -> sa.Column[int]:
    foreign_key = sa.ForeignKey(target, ondelete="CASCADE" if cascade else None)
    return sa.Column(name, sa.Integer(), foreign_key, nullable=False, index=index)
