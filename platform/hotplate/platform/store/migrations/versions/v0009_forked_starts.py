"""Which starts were forks of a template, and of which pool."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
compatible = True


def upgrade() -> None:
    with op.batch_alter_table("cold_starts") as starts:
        starts.add_column(sa.Column("pool", sa.Text(), nullable=False, server_default=""))
        starts.add_column(
            sa.Column("forked", sa.Boolean(), nullable=False, server_default=sa.false())
        )


def downgrade() -> None:
    op.drop_column("cold_starts", "forked")
    op.drop_column("cold_starts", "pool")
