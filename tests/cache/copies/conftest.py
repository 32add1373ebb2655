from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cache.blob_bench import BlobBench, blob_bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[BlobBench]:
    async with blob_bench(tmp_path) as made:
        yield made
