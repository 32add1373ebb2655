"""What the launcher is told of the program and its walls: on a descriptor, for everybody reads what
stands in an argument list, and what stands in our environment may change what we do.

Lines of a verb, a path or another value, and for some a second one, each ended by a NUL.
"""

from __future__ import annotations

import os

WALL = "wall"
"""Put up the wall of that name."""
HIDE = "hide"
"""That folder is empty but for what is shown."""
READ, WRITE = "read", "write"
"""Show that path; one to write may be `SHARED`."""
SHARED = "shared"
"""With all other programs, whose files there are each other's."""
LAYER = "layer"
"""Show that folder, with what is written there in the second one."""
OWN = "own"
"""The program's own folder."""
IDS = "ids"
"""The first of the ids outside that are 0 and on inside; and that of those to whom belongs what all
programs share."""
FAMILY = "family"
"""The program forks others: from which id on, and up to which, are theirs; and the descriptor on
which the first process of its namespace tells what they have ended with."""
VARIABLE = "variable"
"""Of the program's environment: its name, and its value."""
FILTER = "filter"
"""The program of a filter of calls in hex; and the number of `seccomp`, its mode and flags."""

FILES, PROCESSES, USERS = "files", "processes", "ids"
DEVICES, LIMITS, CALLS = "devices", "limits", "filter"
WALLS = (FILES, PROCESSES, USERS, DEVICES, LIMITS, CALLS)
"""The names of walls: a view of its own; its own processes and /proc; ids that are nobody's
outside; no device but the usual and GPUs; limits that cannot be lifted; no calls of the kernel that
no service needs."""

Line = tuple[str, str, str]


def written(lines: list[Line]) -> bytes:
    return b"".join(os.fsencode(field) + b"\0" for line in lines for field in line)


class Instructions:
    """`lines` as one has written them; `paths` are the shown ones, outer ones first."""

    def __init__(self, text: bytes) -> None:
        fields = [os.fsdecode(field) for field in text.split(b"\0")[:-1]]
        lines = [(fields[n], fields[n + 1], fields[n + 2]) for n in range(0, len(fields), 3)]
        self.walls = {value for verb, value, _ in lines if verb == WALL}
        self.hidden = sorted(value for verb, value, _ in lines if verb == HIDE)
        self.shown = sorted((value, verb) for verb, value, _ in lines if verb in (READ, WRITE))
        self.shared = {value for verb, value, more in lines if (verb, more) == (WRITE, SHARED)}
        self.layers = sorted((value, more) for verb, value, more in lines if verb == LAYER)
        self.own = "".join(value for verb, value, _ in lines if verb == OWN)
        self.environment = {name: value for verb, name, value in lines if verb == VARIABLE}
        ids = next(((value, more) for verb, value, more in lines if verb == IDS), ("0", "0"))
        self.first_id, self.first_shared_id = map(int, ids)
        self.family = _numbers(lines, FAMILY)
        self.filter = next(((value, more) for verb, value, more in lines if verb == FILTER), None)


def _numbers(lines: list[Line], verb: str) -> list[int]:
    """All that stand in the line of that verb; none where there is none."""
    words = (f"{value} {more}" for each, value, more in lines if each == verb)
    return list(map(int, next(words, "").split()))
