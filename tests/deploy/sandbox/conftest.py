"""Where code is tried within walls, as root's and as an ordinary user's."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.deploy.sandbox.walled import ORDINARY_USER, Place, place


@pytest.fixture(params=["ourselves", "an ordinary user"])
def here(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(os.getuid() if request.param == "ourselves" else ORDINARY_USER) as made:
        yield made
