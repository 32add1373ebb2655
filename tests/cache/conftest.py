from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cache.agent_bench import AgentBench, agent_bench


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[AgentBench]:
    with agent_bench(tmp_path) as made:
        yield made
