"""Versions of a deployment beside its first: what they get of its requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
compatible = True


def upgrade() -> None:
    with op.batch_alter_table("deployments") as deployments:
        deployments.add_column(sa.Column("canary", sa.JSON(), nullable=False, server_default="{}"))
        deployments.add_column(sa.Column("parent_id", sa.Integer(), nullable=True))
    op.create_index("ix_deployments_parent_id", "deployments", ["parent_id"])


def downgrade() -> None:
    # Older code would serve them as deployments: it is to tear them down.
    op.execute("UPDATE deployments SET wanted = 'deleted' WHERE name LIKE '%#%'")
    op.drop_index("ix_deployments_parent_id", "deployments")
    op.drop_column("deployments", "parent_id")
    op.drop_column("deployments", "canary")
