"""A round of 10,000 requests through real gateways, with real replicas and faults."""

from __future__ import annotations

import random
from pathlib import Path

from loadtests.history.guarantees import violations
from loadtests.storms.history import happened
from loadtests.systems.recorded_round import RecordedRound

OPERATIONS = 10_000


async def test_a_round_with_faults_keeps_every_guarantee(tmp_path: Path) -> None:
    trial = RecordedRound(tmp_path, first=1, operations=OPERATIONS)
    history = await trial.run(random.Random(1), every_s=2.0)
    assert list(violations(history)) == []
    counts = happened(history)
    assert counts["requests"] == len(history.ended) == OPERATIONS
    assert counts["answered"] > OPERATIONS / 2
    assert counts["refused"] and counts["left"] and counts["compared in order"] > OPERATIONS / 20
    assert trial.faults["replicas killed"]
