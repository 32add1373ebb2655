"""Which of several control planes acts, and for how long."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
compatible = True


def upgrade() -> None:
    op.create_table(
        "leadership",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("renewals", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", sa.Double(), nullable=False),
        sa.Column("rival_at", sa.Double(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("leadership")
