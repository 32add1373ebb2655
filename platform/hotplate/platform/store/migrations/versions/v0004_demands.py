"""What deciders were told: with each decision, and over time, to build past demand again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
compatible = True


def upgrade() -> None:
    with op.batch_alter_table("decisions") as decisions:
        decisions.add_column(sa.Column("inputs", sa.JSON(), nullable=False, server_default="{}"))
    op.create_table(
        "demands",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column(
            "deployment_id",
            sa.Integer(),
            sa.ForeignKey("deployments.id", ondelete="CASCADE"),
            nullable=False,
            index=True,
        ),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("service", sa.Text(), nullable=False),
        sa.Column("arrived", sa.Integer(), nullable=False),
        sa.Column("in_flight", sa.Integer(), nullable=False),
        sa.Column("queued", sa.Integer(), nullable=False),
        sa.Column("service_s", sa.Double(), nullable=False),
        sa.Column("ready", sa.Integer(), nullable=False),
        sa.Column("starting", sa.Integer(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("demands")
    op.drop_column("decisions", "inputs")
