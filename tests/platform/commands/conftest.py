"""What tests of commands share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hotplate.platform.cli import main
from hotplate.platform.store.identities import ADMIN
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import ORGANIZATION
from tests.support.control_plane.cloud import Cloud

Hotplate = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def hotplate(store: Store, cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> Hotplate:
    """Runs a command as an operator types it: its status, output and errors."""
    user = store.identities.ensure_user(ORGANIZATION, ADMIN, "a@localhost")
    store.identities.ensure_operator(user)
    operator = store.tokens.add_token(user, "admin", operator=True)
    endpoint = str(cloud.server.make_url("/"))

    async def run(*words: str, token: str = operator) -> tuple[int, str, str]:
        command = [*words, "--endpoint", endpoint, "--token", token]
        status = await asyncio.to_thread(main, command)
        return status, *capsys.readouterr()

    return run
