"""What organizations may have, and what deployments always need of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
compatible = True

AMOUNTS = ("replicas", "gpus", "cpus", "memory_bytes", "standby")


def upgrade() -> None:
    op.create_table(
        "quotas",
        sa.Column(
            "organization_id",
            sa.Integer(),
            sa.ForeignKey("organizations.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        *(sa.Column(name, sa.Double(), nullable=True) for name in AMOUNTS),
        sa.Column("weight", sa.Double(), nullable=False),
    )
    with op.batch_alter_table("deployments") as deployments:
        deployments.add_column(sa.Column("least", sa.JSON(), nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("deployments", "least")
    op.drop_table("quotas")
