"""Who asked for a revision, whether its roll-out is paused, and how far that has come."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
compatible = True


def upgrade() -> None:
    with op.batch_alter_table("revisions") as revisions:
        revisions.add_column(sa.Column("by", sa.Text(), nullable=False, server_default=""))
        revisions.add_column(
            sa.Column("paused", sa.Boolean(), nullable=False, server_default=sa.false())
        )
        revisions.add_column(sa.Column("progress", sa.JSON(), nullable=False, server_default="{}"))


def downgrade() -> None:
    with op.batch_alter_table("revisions") as revisions:
        for name in ("by", "paused", "progress"):
            revisions.drop_column(name)
