"""Who changed what, and who was refused."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
compatible = True


def upgrade() -> None:
    texts = ("actor", "token", "organization", "action", "object", "outcome", "address")
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.DateTime(), nullable=False, index=True),
        *(sa.Column(name, sa.Text(), nullable=False) for name in (*texts, "request_id")),
        sa.Column("changes", sa.JSON(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_organization", "audit", ["organization"])


def downgrade() -> None:
    op.drop_table("audit")
