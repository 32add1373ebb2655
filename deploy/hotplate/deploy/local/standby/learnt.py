"""What is kept of standbys over restarts: pools, and what the planner has learnt of starts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.standby.planner import StandbyPlanner
from hotplate.deploy.local.runtime import Warm
from hotplate.deploy.local.standby.pool import StandbyPool

log = logging.getLogger(__name__)


def recall(file: Path, now: float) -> tuple[StandbyPlanner, dict[str, StandbyPool]]:
    """What the last engine knew; nothing where that cannot be read."""
    pools: dict[str, StandbyPool] = {}
    try:
        kept = json.loads(file.read_text())
        planner = StandbyPlanner(now, kept["memory"])
        for pool in map(_pool, kept["pools"]):
            if Path(pool.warm.argv[0]).exists():  # its environment has not been removed
                pools[pool.name] = pool
    except FileNotFoundError:
        return StandbyPlanner(now), {}
    except (OSError, ValueError, TypeError, KeyError, MemoryInvalid) as error:
        log.warning("what was learnt of standbys cannot be read and is learnt again: %s", error)
        return StandbyPlanner(now), {}
    return planner, pools


def to_keep(planner: StandbyPlanner, pools: Iterable[StandbyPool], now: float) -> dict[str, Any]:
    """As JSON, for `recall`."""
    return {
        "pools": [{"warm": asdict(pool.warm), "gpus": pool.gpus} for pool in pools],
        "memory": planner.memory(now),
    }


def _pool(kept: dict[str, Any]) -> StandbyPool:
    lists = ("argv", "reads", "writes", "layers", "template")
    given = {"template": (), **kept["warm"]}  # an older platform has written none
    warm = Warm(**given | {name: tuple(given[name]) for name in lists})
    return StandbyPool(warm, tuple(kept["gpus"]), is_proven=True)
