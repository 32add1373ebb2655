"""Alembic runs this to migrate; the connection comes from `store/database.py`."""

from __future__ import annotations

from alembic import context

from hotplate.platform.store.tables import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    # SQLite can undo changes of the schema too; one transaction for all of them.
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
