"""The phases of one cold start, noted by the engine and by the replica's own process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from hotplate.deploy.engine import Phase


def unix_now() -> float:
    """Wall time in Unix seconds: phases are compared between processes and shown to people."""
    return datetime.now(UTC).timestamp()


class PhaseLog:
    """What the engine's side of a cold start has noted; a `Recorder`."""

    def __init__(self, phases: Iterable[Phase] = ()) -> None:
        self._phases = {phase.name: phase for phase in phases}

    def begin(self, phase: str) -> None:
        """Note that `phase` begins now; a second call does not move its start."""
        self._phases.setdefault(phase, Phase(phase, unix_now()))

    def end(self, phase: str) -> None:
        """Note that `phase` ends now."""
        begun = self._phases.get(phase) or Phase(phase, unix_now())
        self._phases[phase] = replace(begun, end=unix_now())

    def phases(self) -> tuple[Phase, ...]:
        return tuple(self._phases.values())


def merge(
    noted: Iterable[Phase], own: Iterable[Phase], ready_at: float | None = None
) -> tuple[Phase, ...]:
    """One list of what the engine has `noted` and of the process's `own` phases, by start.

    A phase in both begins with the earlier and ends with the process's word, which knows when it
    was up; if one had ended before the other began, it is the longer of the two. Once ready
    (`ready_at`, Unix seconds) no phase is open any more.
    """
    merged = {phase.name: phase for phase in noted}
    for phase in own:
        merged[phase.name] = _joined(merged.get(phase.name, phase), phase)
    if ready_at is not None:
        for name, phase in merged.items():
            if phase.end is None:
                merged[name] = replace(phase, end=max(phase.start, ready_at))
    return tuple(sorted(merged.values(), key=lambda phase: phase.start))


def _joined(noted: Phase, own: Phase) -> Phase:
    if noted.end is not None and own.end is not None and noted.end < own.start:
        return max(noted, own, key=lambda phase: (phase.end or phase.start) - phase.start)
    end = noted.end if own.end is None else own.end
    return Phase(noted.name, min(noted.start, own.start), end)
