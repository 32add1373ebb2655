"""Whether a history keeps what the gateway promises. Pure; each violation is a sentence.

one end       Every request that was sent has exactly one end for its client, and no client waits
              for ever. By the client's clock.
one run       What may not run twice has begun at most once, and not at all where it was refused as
              not tried. What was answered ran to its end between its sending and its answer: runs
              by the replica's clock, sending and answer by the client's.
slots         No replica ever runs more handlers at once than it has slots; handlers whose callers
              have left count. By the replica's clock.
order         Of two requests of one organization and time limit in one gateway's queue, the one
              that came first is granted first. By the gateway's clock, between the
              times of the replica and the client.
own answer    The body of every answer was made for the request that it answers. No clock.

All clocks are `CLOCK_MONOTONIC` of one machine (`observations.py`).

A gateway notes how long a request waited and how long it took, not when. Its response ended after
the replica's handler had and before the line was written, and it came after it was sent. So its
arrival and its grant each lie in a known interval, and only intervals that do not overlap are
compared: nothing is called a violation that could be none. Requests that waited while a process was
dead are not compared, because they may have been granted, come back, and been granted again.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from loadtests.history.observations import Ended, History, Run, Sent

TICK_S = 0.002
"""How far a gateway's duration may be off: both its ends are of a clock in whole milliseconds."""


class Turn(NamedTuple):
    """A request's way through a gateway's queue; each moment lies between its two bounds."""

    request: int
    arrived_after: float
    arrived_before: float
    granted_after: float
    granted_before: float


def violations(history: History) -> Iterator[str]:
    """A sentence for each violation of a guarantee; it names the requests and the times."""
    return chain(
        one_end(history),
        one_run(history),
        slots(history),
        order(history),
        own_answer(history),
    )


def one_end(history: History) -> Iterator[str]:
    sent = {one.request: one for one in reversed(history.sent)}  # the first of each number
    ends = defaultdict(list)
    for end in history.ended:
        ends[end.request].append(end)
    if len(sent) != len(history.sent):
        again, times = Counter(one.request for one in history.sent).most_common(1)[0]
        yield f"request {again} was sent {times} times: clients must not use a number again"
    for request, one in sent.items():
        if request not in ends:
            yield f"request {request} was sent at {one.at:.6f} s and has no end"
    for request, seen in ends.items():
        if len(seen) > 1:
            shown = ", ".join(f"{end.outcome} at {end.at:.6f} s" for end in seen)
            yield f"request {request} ended {len(seen)} times: {shown}"
        if request not in sent:
            yield f"request {request} ended at {seen[0].at:.6f} s and was never sent"
        elif seen[0].at < sent[request].at:
            yield (
                f"request {request} ended at {seen[0].at:.6f} s, before it was sent "
                f"at {sent[request].at:.6f} s"
            )
        yield from (
            f"request {request} was silent: it was sent at {sent[request].at:.6f} s, and its "
            f"client gave up at {end.at:.6f} s"
            for end in seen
            if end.outcome == "silent" and request in sent
        )


def one_run(history: History) -> Iterator[str]:
    ends = {end.request: end for end in history.ended}
    runs = _by_request(history.runs)
    sent = {one.request: one for one in history.sent}
    for request, seen in runs.items():
        if request not in sent:
            yield f"request {request} ran {_shown(seen[0])} and was never sent"
        elif len(seen) > 1 and not sent[request].may_run_twice:
            shown = ", and ".join(map(_shown, seen))
            yield f"request {request} may not run twice and ran {len(seen)} times: {shown}"
    for one in history.sent:
        end = ends.get(one.request)
        if end is not None:
            yield from _run_and_end(one, end, runs.get(one.request, []))


def _run_and_end(sent: Sent, end: Ended, runs: list[Run]) -> Iterator[str]:
    """What a request's end says about its runs."""
    if end.outcome == "refused" and not sent.may_run_twice and runs:
        yield (
            f"request {sent.request} was refused as not tried at {end.at:.6f} s, but ran "
            f"{_shown(runs[0])}"
        )
    whole = any(
        run.ended_at is not None and sent.at <= run.began_at and run.ended_at <= end.at
        for run in runs
    )
    if end.outcome == "answered" and not whole:
        shown = ", and ".join(map(_shown, runs)) or "nowhere"
        yield (
            f"request {sent.request} was sent at {sent.at:.6f} s and answered at {end.at:.6f} s, "
            f"but did not run in between: it ran {shown}"
        )


def slots(history: History) -> Iterator[str]:
    by_replica = defaultdict(list)
    for run in history.runs:
        by_replica[run.replica].append(run)
    for replica, runs in by_replica.items():
        most = history.slots[replica]
        running: list[tuple[float, int]] = []  # ends with their requests, the earliest first
        over = False
        for run in sorted(runs, key=lambda run: run.began_at):
            while running and running[0][0] <= run.began_at:
                heapq.heappop(running)
            ends_at = float("inf") if run.ended_at is None else run.ended_at
            heapq.heappush(running, (ends_at, run.request))
            if len(running) > most and not over:
                ids = ", ".join(str(request) for request in sorted(r for _, r in running))
                yield (
                    f"replica {replica} has {most} slots and ran {len(running)} handlers "
                    f"at {run.began_at:.6f} s: requests {ids}"
                )
            over = len(running) > most  # one sentence for each time that it is exceeded


def order(history: History) -> Iterator[str]:
    for turns in turns_of(history).values():
        arrived: list[tuple[float, Turn]] = []  # those that may have come later than what follows
        latest: Turn | None = None
        for turn in sorted(turns, key=lambda turn: turn.arrived_after):
            while arrived and arrived[0][0] < turn.arrived_after:
                earlier = heapq.heappop(arrived)[1]
                if latest is None or earlier.granted_after > latest.granted_after:
                    latest = earlier
            if latest is not None and turn.granted_before < latest.granted_after:
                yield (
                    f"request {turn.request} came after request {latest.request} and was granted "
                    f"before it: it came at {turn.arrived_after:.6f} s at the earliest, the other "
                    f"by {latest.arrived_before:.6f} s; it was granted by "
                    f"{turn.granted_before:.6f} s, the other at {latest.granted_after:.6f} s at "
                    "the earliest"
                )
            heapq.heappush(arrived, (turn.arrived_before, turn))


def own_answer(history: History) -> Iterator[str]:
    for end in history.ended:
        if end.outcome == "answered" and end.answer_of != end.request:
            whose = "of no request" if end.answer_of is None else f"of request {end.answer_of}"
            yield f"request {end.request} got the answer {whose} at {end.at:.6f} s"


def turns_of(history: History) -> dict[tuple[str, str], list[Turn]]:
    """The turns that can be compared, by gateway and order."""
    sent = {one.request: one for one in history.sent}
    ran: dict[int, float] = {}  # when the first handler of each ended: at or before its answer
    for run in history.runs:
        if run.ended_at is not None:
            ran[run.request] = min(run.ended_at, ran.get(run.request, run.ended_at))
    disturbed = _merged(history.disturbed)
    found = defaultdict(list)
    for line in history.passed:
        if line.request not in sent or line.request not in ran:
            continue
        one, ended_at = sent[line.request], ran[line.request]
        after = max(one.at, ended_at - line.total_s) - TICK_S
        before = line.noted_at - line.total_s + TICK_S
        granted_after, granted_before = after + line.waited_s, before + line.waited_s
        at = bisect_left(disturbed, after, key=lambda window: window[1])
        if at == len(disturbed) or disturbed[at][0] > granted_before:
            turn = Turn(
                line.request, after, before, granted_after - TICK_S, granted_before + TICK_S
            )
            found[line.gateway, one.order].append(turn)
    return found


def _merged(windows: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time as windows that do not overlap, in order."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _by_request(runs: Iterable[Run]) -> dict[int, list[Run]]:
    found: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        found[run.request].append(run)
    return found


def _shown(run: Run) -> str:
    until = "killed" if run.ended_at is None else f"{run.ended_at:.6f} s"
    return f"at {run.replica} from {run.began_at:.6f} s until {until}"
