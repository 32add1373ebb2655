"""Brings a database's schema to a revision, up or down. Imported only where that is needed."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection


def go(connection: Connection, migrations: Path, before: str, revision: str) -> None:
    """From one revision to another; "" = there is no table. Within the connection's transaction.

    Raises ValueError for a revision that these migrations do not know.
    """
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    step = command.upgrade if revision > before else command.downgrade
    try:
        step(config, revision or "base")
    except CommandError as error:
        raise ValueError(str(error)) from error


def oldest_code(migrations: Path, revision: str) -> str:
    """The earliest revision whose code runs on the schema of this one: the one before, where the
    migration says that it is `compatible`, else itself."""
    script = ScriptDirectory(str(migrations)).get_revision(revision)
    return str(script.down_revision if script.module.compatible else revision)
