"""What the processes of the platform import before they do anything: most of their start."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import contextlib, gc, io, json, sys
from hotplate.platform import cli
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    cli.main([sys.argv[1], "--help"])
print(json.dumps({"modules": list(sys.modules), "frozen": gc.get_freeze_count()}))
"""
CLIENT = {"aiohttp.web", "alembic", "bentoml", "fsspec", "importlib.metadata", "sqlalchemy"}


def started(command: str) -> Any:
    """What a process has imported that knows the command that it is to run."""
    argv = [sys.executable, "-c", PROGRAM, command]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, timeout=60).stdout)


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("up", CLIENT | {"jinja2", "prometheus_client", "uvloop"}),
        ("control-plane", {"alembic", "bentoml", "rich", "sqlalchemy.dialects.postgresql"}),
        ("gateway", CLIENT | {"jinja2", "rich"}),
        ("agent", {"alembic", "bentoml", "grpc", "jinja2", "rich", "sqlalchemy"}),
        ("status", CLIENT | {"aiohttp", "jinja2", "prometheus_client"}),
    ],
)
def test_a_command_imports_what_it_needs_alone(command: str, unneeded: set[str]) -> None:
    assert unneeded.isdisjoint(started(command)["modules"])


@pytest.mark.parametrize("command", ["up", "control-plane", "agent"])
def test_what_a_role_has_imported_is_not_searched_for_garbage(command: str) -> None:
    assert started(command)["frozen"] > 10_000
