"""The platforms of root and of an ordinary user for all attacks; they end with the last of these.

One worker of a test run has them all, and runs all that is here (`tests/schedule.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.security.grounds import ORDINARY_USER, RIVAL, Grounds, grounds
from tests.support.end_to_end.built_once import environments_of
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.rough_client import Bento
from tests.support.services.bentos import KITCHEN

CHECKS = ("hub_checks", "origin", "secret", "sockets")
USERS = {"root": 0, "user": ORDINARY_USER}


@pytest.fixture(scope="package")
def any_bento(tmp_path_factory: pytest.TempPathFactory) -> Bento:
    """As files, to make the attackers' from."""
    laptop = Laptop(tmp_path_factory.mktemp("laptop"))
    name, _, version = asyncio.run(laptop.build("kitchen", KITCHEN)).partition(":")
    return Bento.read(laptop.home / "bentos" / name / version)


@pytest.fixture(scope="package", params=USERS)
def user(request: pytest.FixtureRequest) -> int:
    """Whose platform it is."""
    wanted = USERS[request.param]
    if os.geteuid() != 0 and wanted != os.geteuid():
        pytest.skip("only root can start platforms of other users")
    return wanted


@pytest.fixture(scope="package")
def built(user: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the environment is kept that the first platform of a user has built for all of them."""
    return environments_of(user, tmp_path_factory)


@pytest.fixture(scope="package")
def field(any_bento: Bento, user: int, built: Path) -> Iterator[Grounds]:
    """A platform with all its walls, of root and of an ordinary user, and with all its checks, each
    of which a test may take away for a while. The hostile deployment is another organization's."""
    around = grounds(any_bento, user, built, removable=CHECKS, organization=RIVAL)
    yield from _standing(around)


@pytest.fixture(scope="package")
def open_field(any_bento: Bento, user: int, built: Path) -> Iterator[Grounds]:
    """The same without walls: what is an attack succeeds here, inside the one organization that is
    served so."""
    yield from _standing(grounds(any_bento, user, built, without="walls"))


def _standing(around: AbstractAsyncContextManager[Grounds]) -> Iterator[Grounds]:
    with asyncio.Runner() as runner:
        yield runner.run(around.__aenter__())
        runner.run(around.__aexit__(None, None, None))
