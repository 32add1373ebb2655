"""BentoML's default configuration, read and checked once in a process; runs in the replica (Python
>= 3.9).

BentoML does it each time that a configuration is applied, twice in a replica: that is a third of
what a replica's start takes once everything is imported.
"""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import Any


def keep_defaults() -> None:
    """Has BentoML take a copy of what it has read before."""
    from bentoml._internal.configuration import containers

    read = lru_cache(maxsize=None)(containers.get_default_config)

    def get_default_config(version: int) -> Any:
        return deepcopy(read(version))

    vars(containers)["get_default_config"] = get_default_config
