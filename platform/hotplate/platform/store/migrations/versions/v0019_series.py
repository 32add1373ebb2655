"""What deployments did, step by step, and what they took, hour by hour."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
compatible = True


def upgrade() -> None:
    for owner, owners in (("deployment", "deployments"), ("organization", "organizations")):
        table, key = f"{owner}_series", f"{owner}_id"
        op.create_table(
            table,
            sa.Column(key, sa.Integer(), primary_key=True, autoincrement=False),
            sa.Column("step_s", sa.Integer(), primary_key=True, autoincrement=False),
            sa.Column("at", sa.BigInteger(), primary_key=True, autoincrement=False),
            sa.Column("points", sa.LargeBinary(), nullable=False),
            sa.ForeignKeyConstraint([key], [f"{owners}.id"], ondelete="CASCADE"),
        )
        op.create_index(f"ix_{table}_step_s_at", table, ["step_s", "at"])
    op.create_table(
        "costs",
        sa.Column("organization_id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("deployment", sa.Text(), primary_key=True),
        sa.Column("hour", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("gpu_busy_s", sa.Double(), nullable=False),
        sa.Column("gpu_idle_s", sa.Double(), nullable=False),
        sa.Column("gpu_starting_s", sa.Double(), nullable=False),
        sa.Column("replica_busy_s", sa.Double(), nullable=False),
        sa.Column("replica_idle_s", sa.Double(), nullable=False),
        sa.Column("replica_starting_s", sa.Double(), nullable=False),
        sa.Column("standby_gpu_s", sa.Double(), nullable=False),
        sa.Column("cost", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], ondelete="CASCADE"),
    )
    op.create_index("ix_costs_hour", "costs", ["hour"])


def downgrade() -> None:
    op.drop_table("costs")
    op.drop_table("organization_series")
    op.drop_table("deployment_series")
