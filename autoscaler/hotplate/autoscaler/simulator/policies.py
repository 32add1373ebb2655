"""The policies that can be simulated, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hotplate.autoscaler.policy import Policy
from hotplate.autoscaler.sharing.allocation import Quota
from hotplate.autoscaler.simulator import baselines
from hotplate.autoscaler.simulator.arrivals import RequestTrace
from hotplate.autoscaler.simulator.fleet import SimulatedDeployment
from hotplate.autoscaler.simulator.outcome import Outcome, outcome
from hotplate.autoscaler.simulator.scaler import MAX_REPLICAS, OurScaler, Scaler
from hotplate.autoscaler.simulator.side_by_side import processes_for, run_side_by_side
from hotplate.autoscaler.simulator.simulation import Decided, Hardware, Simulation
from hotplate.autoscaler.simulator.standby_pool import TYPE
from hotplate.autoscaler.standby.planner import StandbyPolicy

STANDBY_SHARE = 0.1
"""The share of a cold start that a start on a ready instance takes: a warm process of the
environment took 0.05 to 0.15."""


@dataclass(frozen=True)
class Setup:
    """What is simulated, apart from the policy."""

    cold_start_s: float = 60.0
    """The duration of every start."""
    concurrency: int = 1
    """How many slots one replica has."""
    instances: int | None = None
    """The number of GPUs; None = no limit."""
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    """Bounds and weights of organizations."""
    standby: int | Literal["auto"] = 0
    """How many empty instances are kept ready; auto = as many as the planner says."""
    price_gpu_s: float = Policy.price_gpu_s
    """For our own policy: how many GPU-seconds one avoided cold start is worth."""

    @property
    def hardware(self) -> Hardware:
        policy = None
        if self.standby == "auto":
            policy = StandbyPolicy()
        elif self.standby:
            policy = StandbyPolicy(fixed={TYPE: self.standby})
        return Hardware(
            self.cold_start_s,
            self.cold_start_s * STANDBY_SHARE,
            math.inf if self.instances is None else self.instances,
            self.quotas,
            policy,
        )


def _ours(setup: Setup) -> Scaler:
    policy = Policy(
        min_replicas=0,
        max_replicas=MAX_REPLICAS,
        concurrency=setup.concurrency,
        price_gpu_s=setup.price_gpu_s,
    )
    return OurScaler(policy, setup.cold_start_s, now=0.0)


POLICIES: Mapping[str, Callable[[Setup], Scaler]] = {
    "ours": _ours,
    "knative-kpa": lambda setup: baselines.KnativeKpa(setup.concurrency),
    "hpa": lambda setup: baselines.Hpa(setup.concurrency),
    "bentocloud": lambda setup: baselines.BentoCloud(setup.concurrency),
    "ray-serve": lambda setup: baselines.RayServe(setup.concurrency),
    "kubeai": lambda setup: baselines.KubeAi(setup.concurrency),
    "modal-idle": lambda setup: baselines.ModalIdle(setup.concurrency),
}


def simulate(
    name: str,
    trace: Mapping[str, RequestTrace],
    setup: Setup,
    decided: Callable[[Decided], None] | None = None,
) -> tuple[Outcome, Sequence[SimulatedDeployment]]:
    """The trace under the policy of that name; `decided` gets each decision, in order of time.

    Raises SimulationLost.
    """
    fleets = [
        SimulatedDeployment(deployment, arrivals, setup.concurrency, POLICIES[name](setup))
        for deployment, arrivals in trace.items()
    ]
    hardware = setup.hardware
    if decided is None and not hardware.shared:
        fleets = run_side_by_side(
            fleets, lambda some: Simulation(some, hardware).run(), processes_for(fleets)
        )
        return outcome(fleets), fleets
    simulation = Simulation(fleets, hardware, decided)
    simulation.run()
    return outcome(fleets, simulation.standby_s), fleets
