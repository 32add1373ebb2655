"""How urgent an organization's deployments are at most beside others'."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
compatible = True


def upgrade() -> None:
    with op.batch_alter_table("quotas") as quotas:
        quotas.add_column(sa.Column("priority", sa.Integer(), nullable=False, server_default="3"))


def downgrade() -> None:
    op.drop_column("quotas", "priority")
