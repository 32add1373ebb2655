"""A PostgreSQL server of our own, on a Unix socket, and empty databases in it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from uuid import uuid4

from sqlalchemy import create_engine, make_url, text


def missing() -> str:
    """What keeps this machine from running one; empty if nothing does."""
    if shutil.which("initdb") is None:
        return "PostgreSQL is not installed here (no initdb)"
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed here (pip install hotplate[postgresql])"
    return ""


@contextmanager
def server() -> Iterator[str]:
    """The URL of its first database, for SQLAlchemy."""
    # The server refuses to run as root, and its user must reach the folder: not pytest's own.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        if user is not None:
            shutil.chown(folder, user)
        run = partial(subprocess.run, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)
        run(["initdb", "-D", f"{folder}/data", "-U", "hotplate", "-A", "trust", "--no-sync"])
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        control = ["pg_ctl", "-D", f"{folder}/data", "-w"]
        run([*control, "-o", options, "-l", f"{folder}/log", "start"])
        try:
            yield f"postgresql+psycopg://hotplate@/postgres?host={folder}"
        finally:
            run([*control, "-m", "immediate", "stop"])


def database(server: str, template: str = "") -> str:
    """The URL of a new database, as a user writes it: empty, or a copy of another one."""
    name = f"test_{uuid4().hex}"
    copied = f" TEMPLATE {make_url(template).database}" if template else ""
    _execute(server, f"CREATE DATABASE {name}{copied}")
    return make_url(server).set(drivername="postgresql", database=name).render_as_string(False)


def drop(server: str, url: str) -> None:
    """Removes a database, whoever is connected to it."""
    _execute(server, f"DROP DATABASE {make_url(url).database} WITH (FORCE)")


def _execute(server: str, statement: str) -> None:
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


def set_read_only(server: str, value: bool) -> None:
    """Whether its transactions may write nothing; sessions that are open learn of it soon."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("SET default_transaction_read_only = off"))
        state = "on" if value else "off"
        connection.execute(text(f"ALTER SYSTEM SET default_transaction_read_only = {state}"))
        connection.execute(text("SELECT pg_reload_conf()"))
    engine.dispose()
