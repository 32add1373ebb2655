"""What replicas leave to later ones: which modules they import, and what they have compiled; pure.

A lesson is for replicas of one organization, environment, set of models and kind of GPU, and the
ticket says all of these but the last: a replica can only teach its own like.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from hotplate.cache.volumes.ticket import Ticket

MOST_MODULES = 20_000
MOST_NAME = 200
"""Characters of a module's name."""
BENTOS_KEPT = 100
"""How many bentos a note names, those that came last: it stays as long as one of them is wanted."""
_KIND = "compiled"


@dataclass(frozen=True)
class Lesson:
    """What is known from earlier replicas."""

    modules: Sequence[str] = ()
    """In the order of import."""
    compiled: str = ""
    """The manifest of what they have compiled; "" = nothing."""


def note_of(ticket: Ticket, gpu: str) -> str:
    """The name of its note; `gpu` names the node's kind. Compiled code also runs on one kind of
    machine only, with one C library."""
    parts = [
        ticket.owner or ticket.organization,
        ticket.environment,
        sorted(model.manifest for model in ticket.models),
        gpu,
        [platform.machine(), *platform.libc_ver()],
    ]
    return f"{_KIND}/{blake3(json.dumps(parts).encode()).hexdigest()}"


def noted(lesson: Lesson, ticket: Ticket, before: Mapping[str, Any]) -> dict[str, Any]:
    """What the note says of a lesson, which said that `before`."""
    bentos = before.get("bentos")
    kept = [str(each) for each in bentos] if isinstance(bentos, list) else []
    kept = [each for each in kept if each != ticket.bento] + [ticket.bento]
    note: dict[str, Any] = {
        "organization": ticket.organization,
        "bentos": kept[-BENTOS_KEPT:],
        "modules": list(lesson.modules),
    }
    return {**note, "manifest": lesson.compiled} if lesson.compiled else note


def lesson_in(note: Mapping[str, Any] | None) -> Lesson:
    """The lesson of a note."""
    if note is None:
        return Lesson()
    return Lesson(tuple(module_names(note.get("modules"))), str(note.get("manifest", "")))


def module_names(reported: Any) -> list[str]:
    """The names that are valid of those that a replica reports; no more than a program has."""
    if not isinstance(reported, list):
        return []
    return [name for name in reported[:MOST_MODULES] if _is_module(name)]


def _is_module(name: Any) -> bool:
    return (
        isinstance(name, str)
        and len(name) <= MOST_NAME
        and all(part.isidentifier() for part in name.split("."))
    )
