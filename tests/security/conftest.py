"""One platform of root and one of an ordinary user for all attacks of a session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.security.grounds import ORDINARY_USER, Grounds, grounds
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.rough_client import Bento
from tests.support.services.bentos import KITCHEN

USERS = {"root": 0, "user": ORDINARY_USER}


@pytest.fixture(scope="session")
def any_bento(tmp_path_factory: pytest.TempPathFactory) -> Bento:
    """As files, to make the attackers' from."""
    laptop = Laptop(tmp_path_factory.mktemp("laptop"))
    name, _, version = asyncio.run(laptop.build("kitchen", KITCHEN)).partition(":")
    return Bento.read(laptop.home / "bentos" / name / version)


@pytest.fixture(scope="session", params=USERS)
def user(request: pytest.FixtureRequest) -> int:
    """Whose platform it is."""
    wanted = USERS[request.param]
    if os.geteuid() != 0 and wanted != os.geteuid():
        pytest.skip("only root can start platforms of other users")
    return wanted


@pytest.fixture(scope="session")
def field(any_bento: Bento, user: int) -> Iterator[Grounds]:
    """A platform with all its walls, of root and of an ordinary user."""
    yield from _standing(any_bento, user)


@pytest.fixture(scope="session")
def open_field(any_bento: Bento, user: int) -> Iterator[Grounds]:
    """The same without walls: what is an attack succeeds here."""
    yield from _standing(any_bento, user, without="walls")


def _standing(bento: Bento, user: int, without: str = "") -> Iterator[Grounds]:
    with asyncio.Runner() as runner:
        around = grounds(bento, user, without=without)
        yield runner.run(around.__aenter__())
        runner.run(around.__aexit__(None, None, None))
