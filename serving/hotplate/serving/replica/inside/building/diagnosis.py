"""Why an environment could not be built, read from what `uv` printed; pure.

Python >= 3.9, standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WORDS_CHARS = 300
"""How much of a program's output stands in a reason."""


@dataclass(frozen=True)
class Diagnosis:
    """One sentence with what to do, and whether another try may help."""

    sentence: str
    retry: bool = False
    no_room: bool = False
    """Whether it waits for space on the disk, which no change of the bento helps."""
    may_be_new: bool = False
    """Whether an index may have by now what it had not when `uv` asked it last, up to ten minutes
    ago (PyPI's `max-age`)."""


def diagnose(output: str, python_version: str, step: str) -> Diagnosis:
    """The reason in the output of a failed step (`"uv pip install"` …)."""
    if re.search(r"No interpreter found|Failed to inspect Python interpreter", output):
        return Diagnosis(
            f"Python {python_version} is not on this machine; install it, or build the bento "
            "with a python_version that is."
        )
    if re.search(r"No space left on device|os error 28\b|Disk quota exceeded", output):
        return Diagnosis(
            "The disk is full; free some space for environments.", retry=True, no_room=True
        )
    if missing := _missing_package(output):
        return Diagnosis(
            f"No package index of this machine has {missing}; check its name and version, and "
            "the index settings (UV_DEFAULT_INDEX, UV_INDEX).",
            may_be_new=True,
        )
    if re.search(
        r"dns error|[Cc]onnection refused|timed out|[Ff]ailed to (fetch|download)"
        r"|error sending request|network was disabled",
        output,
    ):
        return Diagnosis(
            "The package index cannot be reached; check the network and the index settings "
            "(UV_DEFAULT_INDEX, UV_INDEX).",
            retry=True,
        )
    if found := re.search(r"Failed to build [`'\"]?([^`'\"\s]+)", output):
        return Diagnosis(f"The package {found[1]} could not be built from source on this machine.")
    if "No solution found" in output:
        return Diagnosis("The requirements of the bento contradict each other.")
    words = _own_words(output)
    reason = f" ({words})" if words else ""
    return Diagnosis(
        f"The step {step!r} of building the environment failed{reason}; its output is in the log."
    )


def _own_words(output: str) -> str:
    """The error and its cause as `uv` prints them; the last line of any other program."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("error: ", "cause: "))]
    return "; ".join(named[:2] or lines[-1:])[:WORDS_CHARS]


def _missing_package(output: str) -> str:
    text = " ".join(output.split())
    for pattern in (
        r"[Bb]ecause (\S+) was not found in the (?:package registry|provided package locations)",
        r"[Bb]ecause there (?:is|are) no versions? of (\S+)",
    ):
        if found := re.search(pattern, text):
            return found[1].rstrip(",")
    return ""
