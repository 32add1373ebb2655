"""Whose turn a task is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
compatible = True


def upgrade() -> None:
    with op.batch_alter_table("tasks") as tasks:
        tasks.add_column(sa.Column("caller", sa.Text(), nullable=False, server_default=""))
        tasks.add_column(sa.Column("priority", sa.Integer(), nullable=False, server_default="3"))


def downgrade() -> None:
    op.drop_column("tasks", "priority")
    op.drop_column("tasks", "caller")
