"""A PostgreSQL server of our own, on a Unix socket, and empty databases in it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.exc import OperationalError


def missing() -> str:
    """What keeps this machine from running one; empty if nothing does."""
    if shutil.which("initdb") is None:
        return "PostgreSQL is not installed here (no initdb)"
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed here (pip install hotplate[postgresql])"
    return ""


@contextmanager
def server(**settings: object) -> Iterator[str]:
    """The URL of its first database, for SQLAlchemy. `settings` are the server's."""
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        if (user := _user()) is not None:
            shutil.chown(folder, user)
        run = _runner(folder)
        run(["initdb", "-D", f"{folder}/data", "-U", "hotplate", "-A", "trust", "--no-sync"])
        Path(folder, "data/postgresql.auto.conf").write_text(
            f"unix_socket_directories = '{folder}'\nlisten_addresses = ''\nfsync = off\n"
            + "".join(f"{name} = {value}\n" for name, value in settings.items())
        )
        url = f"postgresql+psycopg://hotplate@/postgres?host={folder}"
        start(url)
        try:
            yield url
        finally:
            stop(url, "immediate")


def start(server: str) -> None:
    """Starts a server that was stopped; it takes connections then."""
    folder = folder_of(server)
    _runner(folder)(["pg_ctl", "-D", f"{folder}/data", "-w", "-l", f"{folder}/log", "start"])


def stop(server: str, mode: str = "fast") -> None:
    """Stops a server: `fast` ends its connections, `immediate` does not even write what it has."""
    folder = folder_of(server)
    _runner(folder)(["pg_ctl", "-D", f"{folder}/data", "-w", "-m", mode, "stop"])


def folder_of(server: str) -> str:
    """Where it keeps all that it has; `server` is the URL of any of its databases."""
    return str(make_url(server).query["host"])


def _runner(folder: str) -> Callable[[list[str]], object]:
    return partial(subprocess.run, check=True, user=_user(), cwd=folder, stdout=subprocess.DEVNULL)


def _user() -> str | None:
    """The server refuses to run as root, and its user must reach the folder: not pytest's own."""
    return "postgres" if os.geteuid() == 0 else None


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


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection to a database of ours, for what somebody else does there."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@contextmanager
def connections_taken(server: str, url: str) -> Iterator[None]:
    """Every connection that the server gives, those to the database of this URL too."""
    engine = create_engine(server, pool_size=100, isolation_level="AUTOCOMMIT")
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"
    first = engine.connect()
    taken = [first]
    try:
        while True:
            first.execute(text(ended), {"name": make_url(url).database})
            taken.append(engine.connect())
    except OperationalError:
        first.execute(text(ended), {"name": make_url(url).database})
        yield
    finally:
        for connection in taken:
            connection.close()
        engine.dispose()
