"""What may happen to a task, and what becomes of it; pure.

    pending ──start──► in_progress ──end──► completed | failed
       │                    ▲  │
     cancel                 └──┘ start: by the gateway that has it, which may send it again where
       ▼                         nothing of it has run or it may run twice; or by another, once
    canceled                     the one that had it is gone

A task belongs to one gateway from its start to its end. Whatever another one says of it meanwhile
is refused, so that a task is run by one only, and ends once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from hotplate.platform.errors import Conflict


class Status(StrEnum):
    """As BentoML calls them."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def ended(self) -> bool:
        return self in ENDED


ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELED})


@dataclass(frozen=True)
class TaskState:
    """How a task stands."""

    status: Status = Status.PENDING
    gateway: str = ""
    """The one that has it, from its start on."""


@dataclass(frozen=True)
class Start:
    """A slot is there for it; nothing of it may be sent before this was written."""

    gateway: str


@dataclass(frozen=True)
class TaskEnd:
    """Its handler has answered with this status, or it is known that there is no answer."""

    gateway: str
    answered: int


@dataclass(frozen=True)
class Cancel:
    """The caller no longer wants it."""


Event = Start | TaskEnd | Cancel


def after(task: TaskState, event: Event, is_gone: Callable[[str], bool]) -> TaskState:
    """How the task stands after the event. Raises Conflict, with a sentence for the caller.

    `is_gone` says of a gateway that it will not be heard of again.
    """
    status = task.status
    match event:
        case Cancel():
            if status is Status.PENDING:
                return replace(task, status=Status.CANCELED)
            if status is Status.IN_PROGRESS:
                raise Conflict(
                    "the task is running: cancellation is not supported once a task's handler "
                    "has begun; wait for its end"
                )
            raise Conflict(f"the task is {status} already: there is nothing to cancel")
        case Start(gateway):
            if status is Status.PENDING or _owns(task, gateway, is_gone):
                return TaskState(Status.IN_PROGRESS, gateway)
            raise Conflict(f"the task is {status}: it must not be started")
        case TaskEnd(gateway, answered):
            # As in BentoML, an answer below 400 is a result.
            if _owns(task, gateway, is_gone):
                return TaskState(Status.COMPLETED if answered < 400 else Status.FAILED, gateway)
            raise Conflict(f"the task is {status}: nothing waits for this response")


def _owns(task: TaskState, gateway: str, is_gone: Callable[[str], bool]) -> bool:
    if task.status is not Status.IN_PROGRESS:
        return False
    return task.gateway == gateway or is_gone(task.gateway)
