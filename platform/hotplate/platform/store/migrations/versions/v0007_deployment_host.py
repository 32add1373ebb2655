"""By which host a deployment's users reach the platform."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
compatible = True


def upgrade() -> None:
    with op.batch_alter_table("deployments") as deployments:
        deployments.add_column(sa.Column("host", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("deployments", "host")
