"""The phases of one cold start, noted by the engine and by the replica's own process.

instance → environment → process → init follow each other without a gap; weights arrive and are
loaded beside them. Each has a *share*: the part of the whole in which it was what was waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

ONCE = ("instance", "environment")
"""Phases that the next cold start will not have: waiting for room, and building what is there from
now on."""


@dataclass(frozen=True)
class Phase:
    """A part of a cold start. Times are Unix seconds."""

    name: str
    """instance | environment | process | init, one after the other; weights beside them."""
    start: float
    end: float | None = None
    share_s: float = 0.0
    """For how long the start waited for this one; known once the replica is ready. The shares of
    a cold start add up to its length."""


def unix_now() -> float:
    """Wall time in Unix seconds: phases are compared between processes and shown to people."""
    return datetime.now(UTC).timestamp()


class Recorder(Protocol):
    """Notes the phases of one cold start: environment and weights are of whoever makes the bento
    ready to run."""

    def begin(self, phase: str) -> None: ...

    def end(self, phase: str) -> None: ...

    def building(self, log: str) -> None:
        """Its environment is being built, with its output in the file `log`; "" = no longer."""


class PhaseLog:
    """What the engine's side of a cold start has noted; a `Recorder`."""

    def __init__(self, phases: Iterable[Phase] = ()) -> None:
        self._phases = {phase.name: phase for phase in phases}

    def begin(self, phase: str, at: float | None = None) -> None:
        """Note that `phase` begins: `at`, by default now; a second call does not move its start.

        Where nothing is under way it begins with the end of what was: every instant is in a phase.
        """
        ends = [known.end for known in self._phases.values()]
        idle_since = max((end for end in ends if end is not None), default=None)
        if at is None:
            at = unix_now() if idle_since is None or None in ends else idle_since
        self._phases.setdefault(phase, Phase(phase, at))

    def end(self, phase: str) -> None:
        """Note that `phase` ends now."""
        begun = self._phases.get(phase) or Phase(phase, unix_now())
        self._phases[phase] = replace(begun, end=unix_now())

    def phases(self) -> tuple[Phase, ...]:
        return tuple(self._phases.values())


def believable(reported: Iterable[Phase], since: float, now: float) -> list[Phase]:
    """What a process says of its own phases, moved to where it can have been: between its birth
    and now, Unix seconds. A bento's code may have written it."""
    return [
        replace(
            phase,
            start=_within(phase.start, since, now),
            end=None if phase.end is None else _within(phase.end, max(since, phase.start), now),
        )
        for phase in reported
    ]


def merge(
    noted: Iterable[Phase], own: Iterable[Phase], ready_at: float | None = None
) -> tuple[Phase, ...]:
    """One list of what the engine has `noted` and of the process's `own` phases, by start.

    The process ends, and init begins, when its own word says so. Weights may be there twice: as
    they arrived, and as the process loaded them. Once ready (`ready_at`, Unix seconds) no phase is
    open, and each has its share.
    """
    chain = {phase.name: phase for phase in noted}
    reported = {phase.name: phase for phase in own}
    arriving, loading = chain.pop("weights", None), reported.get("weights")
    if arriving is not None and loading is not None and arriving.end is None:
        arriving = replace(arriving, end=loading.end)  # an engine that adopted it did not see it
    process, init = chain.get("process"), reported.get("init")
    if process is not None and init is not None:
        up_at = _within(init.start, process.start, ready_at)
        chain |= {"process": replace(process, end=up_at), "init": Phase("init", up_at)}
    # What comes first here is what is waited for: nothing of the chain can begin before the one
    # before it has ended, init reads what is loading, and what only arrives holds up nobody.
    *before, last = chain.values()
    in_order = [phase for phase in (*before, loading, last, arriving) if phase is not None]
    if ready_at is not None:
        in_order = _with_shares([_closed(phase, ready_at) for phase in in_order], ready_at)
    return tuple(sorted(in_order, key=lambda phase: phase.start))


def _within(at: float, first: float, last: float | None) -> float:
    """`at`, by the clock of another process, moved to where it can have been."""
    return max(first, at if last is None else min(at, last))


def _closed(phase: Phase, ready_at: float) -> Phase:
    start = min(phase.start, ready_at)
    return replace(phase, start=start, end=_within(phase.end or ready_at, start, ready_at))


def _with_shares(phases: Sequence[Phase], ready_at: float) -> list[Phase]:
    """`phases`, all ended, in the order in which they are waited for. Shares sum to the whole."""
    instants = sorted({at for phase in phases for at in (phase.start, phase.end or ready_at)})
    shares = [0.0] * len(phases)
    waited_for = 0
    for begin, end in zip(instants, [*instants[1:], ready_at], strict=True):
        under_way = (n for n, p in enumerate(phases) if p.start <= begin < (p.end or ready_at))
        waited_for = next(under_way, waited_for)
        shares[waited_for] += end - begin
    return [replace(p, share_s=share) for p, share in zip(phases, shares, strict=True)]
