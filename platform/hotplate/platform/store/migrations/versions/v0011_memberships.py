"""People who are members of several organizations, tokens of organizations, sign-ins."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
compatible = False


def upgrade() -> None:
    op.add_column(
        "organizations", sa.Column("description", sa.Text(), nullable=False, server_default="")
    )
    op.add_column("organizations", sa.Column("deleted_at", sa.DateTime()))
    _one_name_each()
    op.add_column(
        "users", sa.Column("operator", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.create_index("ix_users_name", "users", ["name"], unique=True)
    op.create_table(
        "memberships",
        _to("organizations", primary_key=True),
        _to("users", primary_key=True, index=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("last_seen_at", sa.DateTime()),
        sa.Column("created_at", sa.DateTime(), nullable=False),
    )
    # Until now every user might do everything in their organization.
    op.execute(
        "INSERT INTO memberships (organization_id, user_id, role, email, created_at) "
        "SELECT organization_id, id, 'admin', email, created_at FROM users"
    )
    with op.batch_alter_table("tokens") as tokens:
        tokens.add_column(_to("organizations", nullable=True, name="organization_id"))
        tokens.add_column(sa.Column("role", sa.Text(), nullable=False, server_default=""))
        tokens.add_column(
            sa.Column("operator", sa.Boolean(), nullable=False, server_default=sa.false())
        )
        tokens.add_column(sa.Column("last_used_at", sa.DateTime()))
    op.create_index("ix_tokens_organization_id", "tokens", ["organization_id"])
    op.execute(
        "UPDATE tokens SET organization_id = "
        "(SELECT users.organization_id FROM users WHERE users.id = tokens.user_id)"
    )
    first = (
        "SELECT users.id FROM users JOIN organizations ON organizations.id = users.organization_id "
        "WHERE users.name = 'admin' AND organizations.name = 'default'"
    )
    op.execute(f"UPDATE users SET operator = true WHERE id IN ({first})")
    op.execute(f"UPDATE tokens SET operator = true WHERE user_id IN ({first})")
    op.create_table(
        "sign_ins",
        sa.Column("digest", sa.Text(), primary_key=True),
        _to("users", index=True),
        _to("organizations"),
        _to("tokens", nullable=True),
        sa.Column("is_link", sa.Boolean(), nullable=False),
        sa.Column("everywhere", sa.Boolean(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
    )
    op.create_table(
        "login_codes",
        sa.Column("digest", sa.Text(), primary_key=True),
        _to("tokens", nullable=True),
        sa.Column("salt", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
    )


def downgrade() -> None:
    """Everybody is again a member of the organization in which they came first; tokens for other
    organizations, and what is an organization's own, have nobody and go."""
    op.drop_table("login_codes")
    op.drop_table("sign_ins")
    op.execute(
        "DELETE FROM tokens WHERE role <> '' OR organization_id <> "
        "(SELECT users.organization_id FROM users WHERE users.id = tokens.user_id)"
    )
    op.drop_index("ix_tokens_organization_id", "tokens")
    with op.batch_alter_table("tokens") as tokens:
        for name in ("organization_id", "role", "operator", "last_used_at"):
            tokens.drop_column(name)
    op.drop_table("memberships")
    op.drop_index("ix_users_name", "users")
    op.drop_column("users", "operator")
    op.drop_column("organizations", "deleted_at")
    op.drop_column("organizations", "description")


def _one_name_each() -> None:
    """Of users of one name the first keeps it, and the others get their organization's with it."""
    op.execute(
        "UPDATE users SET name = name || '-' || "
        "(SELECT organizations.name FROM organizations WHERE organizations.id = organization_id) "
        "WHERE EXISTS (SELECT 1 FROM users AS first "
        "WHERE first.name = users.name AND first.id < users.id)"
    )


def _to(
    table: str,
    *,
    name: str = "",
    nullable: bool = False,
    primary_key: bool = False,
    index: bool = False,
) -> sa.Column[int]:
    name = name or f"{table.removesuffix('s')}_id"
    return sa.Column(
        name,
        sa.Integer(),
        sa.ForeignKey(f"{table}.id", ondelete="CASCADE"),
        primary_key=primary_key,
        nullable=nullable,
        index=index,
    )
