"""Deployments simulated by several processes: the same figures, and an end whatever happens."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import pytest

from hotplate.autoscaler.errors import SimulationLost
from hotplate.autoscaler.simulator.fleet import SimulatedDeployment
from hotplate.autoscaler.simulator.outcome import outcome
from hotplate.autoscaler.simulator.policies import POLICIES, Setup
from hotplate.autoscaler.simulator.side_by_side import parted, processes_for, run_side_by_side
from hotplate.autoscaler.simulator.simulation import Simulation
from tests.autoscaler.simulator.test_simulation import busy_trace
from tests.support.deploy.running import zombies

SETUP = Setup(20.0)


def fleets(name: str = "ours", requests: int = 300) -> list[SimulatedDeployment]:
    trace = busy_trace(deployments=5, requests=requests)
    return [
        SimulatedDeployment(one, arrivals, 1, POLICIES[name](SETUP))
        for one, arrivals in trace.items()
    ]


def run(some: Sequence[SimulatedDeployment]) -> None:
    Simulation(some, SETUP.hardware).run()


@pytest.mark.parametrize("name", POLICIES)
def test_several_processes_find_what_one_does(name: str) -> None:
    alone = fleets(name)
    run(alone)
    shared = run_side_by_side(fleets(name), run, 3)
    assert [one.name for one in shared] == [one.name for one in alone]
    assert outcome(shared) == outcome(alone)
    assert [one.changes for one in shared] == [one.changes for one in alone]


def test_a_process_that_is_killed_ends_the_simulation_in_a_sentence() -> None:
    us = os.getpid()

    def run_or_die(some: Sequence[SimulatedDeployment]) -> None:
        if os.getpid() != us:
            os.kill(os.getpid(), signal.SIGKILL)
        run(some)

    with pytest.raises(SimulationLost, match="was killed"):
        run_side_by_side(fleets(), run_or_die, 2)
    assert not zombies()


def test_the_parts_have_about_as_much_to_do() -> None:
    some = fleets()
    del some[0].arrivals.arrival_s[30:]
    parts = parted(some, 2)
    assert sorted(one.name for part in parts for one in part) == sorted(one.name for one in some)
    assert sorted(len(part) for part in parts) == [2, 3]


def test_few_requests_are_worth_no_other_process() -> None:
    assert processes_for(fleets()) == 1
    assert processes_for(fleets(requests=12_000)) == min(2, len(os.sched_getaffinity(0)))
