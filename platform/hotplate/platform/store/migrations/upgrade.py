"""Brings a database's schema up to date. Imported only where that is needed."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection


def upgrade(connection: Connection, migrations: Path) -> None:
    """Raises ValueError for a schema that these migrations do not know: of a later version."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise ValueError(str(error)) from error
