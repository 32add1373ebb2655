"""What is kept of standbys over restarts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hotplate.autoscaler.standby.planner import StandbyPlanner
from hotplate.deploy.local.runtime import Warm
from hotplate.deploy.local.standby.learnt import recall, to_keep
from hotplate.deploy.local.standby.pool import StandbyPool


def test_pools_come_back_also_from_a_file_that_knows_no_templates(tmp_path: Path) -> None:
    program = (sys.executable, "-m", "standby")
    warm = Warm("e", program, {}, {}, reads=("/opt",), template=(sys.executable, "-m", "template"))
    pool = StandbyPool(warm, (0,))
    kept = json.loads(json.dumps(to_keep(StandbyPlanner(0.0), [pool], 1.0)))
    file = tmp_path / "standbys.json"

    file.write_text(json.dumps(kept))
    _, pools = recall(file, 2.0)
    assert [each.warm for each in pools.values()] == [warm]

    del kept["pools"][0]["warm"]["template"]
    file.write_text(json.dumps(kept))
    _, pools = recall(file, 2.0)
    assert [each.warm.template for each in pools.values()] == [()]
    assert [each.warm.reads for each in pools.values()] == [("/opt",)]
