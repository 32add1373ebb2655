"""The one of two control planes that acts is killed, and then stopped, under load."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from loadtests.storms import leaders
from loadtests.systems.kitchens import kitchens
from loadtests.systems.templates import SOON
from tests.support.control_plane import postgresql
from tests.support.end_to_end.built_once import built_once, environments_of

pytestmark = pytest.mark.client


@pytest.mark.skipif(bool(postgresql.missing()), reason=postgresql.missing())
async def test_another_control_plane_takes_over_and_no_request_or_replica_is_lost(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The storm of 50 blows, with two; that of SIGSTOP takes the 10 s of a term."""
    kept = environments_of(os.geteuid(), tmp_path_factory)
    with postgresql.server() as server:
        database = postgresql.database(server)
        async with kitchens(
            tmp_path, settings=leaders.TWO, standby=SOON, database=database
        ) as place:
            with built_once(place.platform.data / "environments", kept):
                await place.deploy("first")
            verdict = await leaders.storm(place, 2, random.Random(1))
    assert verdict.broken == []
    assert verdict.figures["SIGKILL"] == verdict.figures["SIGSTOP"] == 1
    assert verdict.figures["requests failed"] == 0
    assert verdict.figures["of them lost"] == 0
