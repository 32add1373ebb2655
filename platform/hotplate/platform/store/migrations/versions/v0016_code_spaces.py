"""Code spaces: which deployments are one, their files, and what of them each revision runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
compatible = True


def upgrade() -> None:
    # Not in a batch: that would make the tables anew, and give ids of removed rows out again.
    op.add_column(
        "deployments", sa.Column("dev", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column("deployments", sa.Column("tree", sa.Text(), nullable=False, server_default=""))
    op.add_column("revisions", sa.Column("files", sa.Text(), nullable=False, server_default=""))
    op.create_table(
        "code_files",
        sa.Column(
            "deployment_id",
            sa.Integer(),
            sa.ForeignKey("deployments.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("path", sa.Text(), primary_key=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("md5", sa.Text(), nullable=False),
        sa.Column("chunks", sa.JSON(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("code_files")
    op.drop_column("revisions", "files")
    op.drop_column("deployments", "tree")
    op.drop_column("deployments", "dev")
