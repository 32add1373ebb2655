"""Tasks that the platform keeps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
compatible = True


def upgrade() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column(
            "deployment_id",
            sa.Integer(),
            sa.ForeignKey("deployments.id", ondelete="SET NULL"),
            nullable=True,
            index=True,
        ),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False, index=True),
        sa.Column("gateway", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("executed_at", sa.DateTime(), nullable=True),
        sa.Column("completed_at", sa.DateTime(), nullable=True, index=True),
        sa.Column("input_head", sa.LargeBinary(), nullable=False),
        sa.Column("input_body", sa.LargeBinary(), nullable=True),
        sa.Column("input_bytes", sa.BigInteger(), nullable=False),
        sa.Column("input_part", sa.Integer(), nullable=False),
        sa.Column("answer_head", sa.LargeBinary(), nullable=False),
        sa.Column("answer_body", sa.LargeBinary(), nullable=True),
        sa.Column("answer_bytes", sa.BigInteger(), nullable=False),
        sa.Column("answer_part", sa.Integer(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("tasks")
