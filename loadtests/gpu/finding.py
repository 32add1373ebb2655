"""What a check has found: one row of the table."""

from __future__ import annotations

from dataclasses import dataclass


class CheckFailed(Exception):
    """What should be is not; the message is a sentence."""


@dataclass(frozen=True)
class Finding:
    what: str
    figure: str = ""
    holds: bool | None = None
    """None where there is nothing to hold."""
    remark: str = ""


def ensure(holds: bool, otherwise: str) -> None:
    """Raises CheckFailed with that sentence."""
    if not holds:
        raise CheckFailed(otherwise)
