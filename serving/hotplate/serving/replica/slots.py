"""How many requests one replica may have at a time, from its service's configuration; pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def slots(config: Mapping[str, Any], has_tasks: bool, cpus: float = 0.0) -> int:
    """The slots of one replica.

    `config` is a BentoML service configuration with the deployment's overrides applied, `cpus`
    the CPU cores that the replica gets (0 = not limited). `traffic.concurrency` if given, else
    `traffic.max_concurrency`, else 1 where tasks run (BentoML's own default for them), else as
    many calls as it can run: workers x threads.
    """
    traffic = config.get("traffic") or {}
    limit = traffic.get("concurrency") or traffic.get("max_concurrency")
    if limit:
        return int(limit)
    if has_tasks:
        return 1
    return workers(config, cpus) * int(config.get("threads") or 1)


def workers(config: Mapping[str, Any], cpus: float = 0.0) -> int:
    """The worker processes of one replica; `"cpu_count"` is one per whole core that it gets."""
    asked = config.get("workers") or 1
    if asked == "cpu_count":
        return max(1, int(cpus)) if cpus else os.cpu_count() or 1
    return int(asked)
