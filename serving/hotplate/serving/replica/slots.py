"""How many requests one replica may have at a time, and where that number comes from; pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hotplate.serving.gateway.protocol.routes import FIRST_SLOTS

AUTO: Final = "auto"
"""In place of a number: as if the bento set none."""
SET, THREADS, LEARNT, LABEL = "set", "threads", "learnt", "label"
NOT_SET = "traffic.concurrency is not set"
CONCURRENCY_LABEL: Final = "hotplate/concurrency"


@dataclass(frozen=True)
class SlotCount:
    """The slots of a replica of one service."""

    number: int
    """The number of slots; if it is learnt, the first one."""
    source: str
    """SET, THREADS, LEARNT or LABEL."""
    why: str
    """The reason, for people."""
    least: int = 1
    """The learnt number is never lowered below this: the size of BentoML's batches."""
    tasks: int = 0
    """Slots for tasks that the platform keeps; 0 = they share those of other requests."""

    @property
    def learns(self) -> bool:
        return self.source == LEARNT

    @property
    def source_text(self) -> str:
        """`learnt (async methods; traffic.concurrency is not set)`."""
        return f"{self.source} ({self.why})"

    def text(self) -> str:
        """`32 slots, learnt (async methods; traffic.concurrency is not set)`."""
        counted = "1 slot" if self.number == 1 else f"{self.number} slots"
        tasks = f"; tasks have {self.tasks} of their own" if self.tasks else ""
        return f"{counted}, {self.source_text}{tasks}"


def slots(
    config: Mapping[str, Any],
    has_tasks: bool,
    cpus: float = 0.0,
    *,
    reported: Mapping[str, Any] | None = None,
    label: str = "",
    learnt: int = 0,
) -> SlotCount:
    """The slots of one replica.

    `config` is a BentoML service configuration with the deployment's overrides applied, `cpus` the
    CPU cores that the replica gets (0 = not limited). `reported` is a replica's report on the
    service (`methods.py`); None = none has been ready yet. `label` is a number, AUTO, or empty.
    `learnt` is the number that its replicas have learnt; 0 = there is none.

    A label has precedence, then what the author or the deployment wrote, as `traffic.concurrency`
    or `max_concurrency`. Otherwise services of sync methods have as many slots as calls can run,
    workers x threads; the number of all others, and of those not known yet, is learnt. Tasks share
    slots with other methods only if a number is set for both.
    """
    if label and label != AUTO:
        return SlotCount(int(label), LABEL, CONCURRENCY_LABEL)
    name, number = ("", 0) if label == AUTO else _written(config, has_tasks, reported)
    if number:
        return SlotCount(number, SET, f"traffic.{name}")
    tasks = 1 if has_tasks else 0
    not_set = f"the label {CONCURRENCY_LABEL} is {AUTO}" if label == AUTO else NOT_SET
    if reported is not None and reported["only_tasks"]:
        return SlotCount(1, THREADS, f"tasks; {not_set}", tasks=tasks)
    if reported is not None and not reported["learns"]:
        threads = int(config.get("threads") or 1)
        processes = workers(config, cpus)
        why = f"sync methods, {processes} x {threads} threads; {not_set}"
        return SlotCount(processes * threads, THREADS, why, tasks=tasks)
    why = reported["learns"] if reported is not None else "no replica has been ready yet"
    least = int(reported["batch"]) if reported is not None else 1
    return SlotCount(
        learnt or FIRST_SLOTS, LEARNT, f"{why}; {not_set}", least=max(1, least), tasks=tasks
    )


def _written(
    config: Mapping[str, Any], has_tasks: bool, reported: Mapping[str, Any] | None
) -> tuple[str, int]:
    """The setting that limits how many run at a time, and its value; 0 = there is none.

    BentoML writes a concurrency of 1 into the configuration of every service with tasks, from which
    it cannot be reported whether the author wrote it; the replica can tell.
    """
    traffic = config.get("traffic") or {}
    if reported is not None:
        traffic = {**traffic, "concurrency": reported["concurrency"]}
    elif has_tasks and traffic.get("external_queue") and traffic.get("concurrency") == 1:
        traffic = {**traffic, "concurrency": None}
    for name in ("concurrency", "max_concurrency"):
        if traffic.get(name):
            return name, int(traffic[name])
    return "", 0


def workers(config: Mapping[str, Any], cpus: float = 0.0) -> int:
    """The worker processes of one replica; `"cpu_count"` is one per whole core that it gets."""
    asked = config.get("workers") or 1
    if asked == "cpu_count":
        return max(1, int(cpus)) if cpus else os.cpu_count() or 1
    return int(asked)
