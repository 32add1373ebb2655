"""What the tests of readers of weights share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest


@pytest.fixture
def in_background() -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor() as pool:
        yield pool.submit
