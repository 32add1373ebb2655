"""One program of an environment's build, and what its end means; pure.

Whoever runs it, the platform beside it or a program in a pod, asks `after` what comes next. Python
>= 3.9, standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hotplate.serving.replica.inside.building.diagnosis import diagnose

TAIL_LINES = 20
TAIL_BYTES = 256 << 10
"""How much of a step's output is searched for the reason of its failure, and how much is shown."""
MOST_LOG_BYTES = 64 << 20


@dataclass(frozen=True)
class Step:
    """A command of a build."""

    name: str
    argv: Sequence[str]
    cwd: str
    shown: str = ""
    """What the log has in place of the command; empty = the command."""
    refresh: Sequence[str] = ()
    """With these flags it is run again where an index may have by now what was missing."""

    @property
    def header(self) -> str:
        """What stands in the log before its output."""
        return f"# {self.shown}\n" if self.shown else f"$ {' '.join(self.argv)}\n"

    @property
    def command(self) -> list[str]:
        """What is run: replicas that read its files are other users."""
        return ["/bin/sh", "-c", 'umask 022; exec "$@"', "sh", *self.argv]


@dataclass(frozen=True)
class StepFailure:
    """Why a build ends with a step."""

    sentence: str
    retry: bool = False
    no_room: bool = False
    log: Sequence[str] = ()


def after(
    step: Step, status: int | None, output: str, python_version: str
) -> Step | StepFailure | None:
    """What a step's end leads to: the same once more, the end of the build, or the next step."""
    if status == 0:
        return None
    diagnosis = diagnose(output, python_version, step.name)
    if diagnosis.may_be_new and step.refresh:
        return replace(step, argv=[*step.argv, *step.refresh], refresh=())
    return StepFailure(
        diagnosis.sentence,
        retry=diagnosis.retry,
        no_room=diagnosis.no_room,
        log=output.splitlines()[-TAIL_LINES:],
    )


def printed_too_much(most_bytes: int) -> StepFailure:
    return StepFailure(
        f"Building the environment printed more than {most_bytes >> 20} MiB; have its commands "
        "print less."
    )
