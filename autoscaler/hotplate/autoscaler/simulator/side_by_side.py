"""Deployments that share nothing, simulated in parallel by a process per processor."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from hotplate.autoscaler.errors import SimulationLost
from hotplate.autoscaler.simulator.fleet import SimulatedDeployment

WORTH = 50_000
"""The number of requests for which one more process pays off: about a second of simulation."""

Run = Callable[[Sequence[SimulatedDeployment]], None]
"""Simulates these deployments to their end."""


def processes_for(fleets: Sequence[SimulatedDeployment]) -> int:
    """How many processes finish these deployments soonest."""
    requests = sum(len(fleet.arrivals.arrival_s) for fleet in fleets)
    return min(len(os.sched_getaffinity(0)), len(fleets), 1 + requests // WORTH)


def run_side_by_side(
    fleets: Sequence[SimulatedDeployment], run: Run, processes: int
) -> list[SimulatedDeployment]:
    """The deployments after `run`, in the same order. Raises SimulationLost.

    Those that other processes simulate are returned as copies.
    """
    own, *others = parted(fleets, processes)
    fork = multiprocessing.get_context("fork")
    started: list[tuple[ForkProcess, Connection]] = []
    try:
        for share in others:
            line, end = fork.Pipe(duplex=False)
            process = fork.Process(target=_simulate, args=(share, run, line, end), daemon=True)
            process.start()
            started.append((process, line))
            end.close()
        run(own)
        found = [own, *(_received(line) for _, line in started)]
    finally:
        for process, _ in started:
            process.terminate()
            process.join()
    ended = {fleet.name: fleet for some in found for fleet in some}
    return [ended[fleet.name] for fleet in fleets]


def _received(line: Connection) -> list[SimulatedDeployment]:
    try:
        fleets: list[SimulatedDeployment] = line.recv()
    except EOFError:
        raise SimulationLost(
            "a process that simulated some of the deployments was killed, perhaps for lack of "
            "memory; give a shorter trace"
        ) from None
    return fleets


def parted(fleets: Sequence[SimulatedDeployment], parts: int) -> list[list[SimulatedDeployment]]:
    """Parts with about as many requests each: the largest deployment goes to the smallest part."""
    found: list[list[SimulatedDeployment]] = [[] for _ in range(parts)]
    counts = [0] * parts
    for fleet in sorted(fleets, key=lambda one: -len(one.arrivals.arrival_s)):
        least = counts.index(min(counts))
        found[least].append(fleet)
        counts[least] += len(fleet.arrivals.arrival_s)
    return found


def _simulate(
    share: Sequence[SimulatedDeployment], run: Run, line: Connection, end: Connection
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    line.close()  # otherwise it would wait for ever for a parent that was killed
    run(share)
    end.send(share)
