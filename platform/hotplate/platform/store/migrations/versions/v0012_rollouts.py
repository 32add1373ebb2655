"""Who asked for a revision, whether its roll-out is paused, and how far that has come."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
compatible = True


def upgrade() -> None:
    # Not in a batch: that would make the table anew, and give ids of removed rows out again.
    for column in (
        sa.Column("by", sa.Text(), nullable=False, server_default=""),
        sa.Column("paused", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("progress", sa.JSON(), nullable=False, server_default="{}"),
    ):
        op.add_column("revisions", column)


def downgrade() -> None:
    for name in ("by", "paused", "progress"):
        op.drop_column("revisions", name)
