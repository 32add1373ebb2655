"""Secrets, with their values encrypted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
compatible = True


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column(
            "organization_id",
            sa.Integer(),
            sa.ForeignKey("organizations.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("creator_id", sa.Integer(), sa.ForeignKey("users.id"), nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("name", "description", "type", "stage", "path")
        ),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("updated_at", sa.DateTime(), nullable=False),
        sa.UniqueConstraint("organization_id", "name"),
    )
    op.create_table(
        "secret_values",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column(
            "secret_id",
            sa.Integer(),
            sa.ForeignKey("secrets.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("sub_path", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("secret_id", "key"),
    )
    op.create_index("ix_secret_values_key_id", "secret_values", ["key_id"])


def downgrade() -> None:
    op.drop_table("secret_values")
    op.drop_table("secrets")
