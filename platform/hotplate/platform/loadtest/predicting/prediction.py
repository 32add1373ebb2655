"""What would happen: a load test's arrivals through the autoscaler's simulator, with what the
platform has learnt of the deployment; and how far that was from what happened.

The simulator starts with the replicas that there are, and decides by the deployment's own policy
and by what its decider has learnt (cold starts, service time, gaps). A start takes what such starts
took lately: a fork where there is a template, else a cold one (`starts`). It knows no processor
that replicas share, so a service that becomes slower under load is predicted too fast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from hotplate.autoscaler.bentoml_policy import policy_from
from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.policy import Policy
from hotplate.autoscaler.simulator.arrivals import RequestTrace
from hotplate.autoscaler.simulator.fleet import SimulatedDeployment
from hotplate.autoscaler.simulator.outcome import percentile
from hotplate.autoscaler.simulator.scaler import OurScaler
from hotplate.autoscaler.simulator.simulation import Hardware, Simulation
from hotplate.autoscaler.simulator.template import SimulatedTemplate, TemplateSupply
from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.observation import ObservedRun
from hotplate.platform.loadtest.predicting import starts
from hotplate.platform.loadtest.predicting.starts import spread
from hotplate.platform.spec.annotations import binary_of
from hotplate.platform.spec.label_settings import LabelSettings

REQUESTS = 1000
"""The mean service time is that of so many of the last requests."""
READY = ("ready", "unready", "starting")
"""States of a replica that is there at second 0."""


@dataclass(frozen=True)
class Learnt:
    """What the platform knows of a deployment, and what it would decide by."""

    policy: Policy
    memory: Mapping[str, Any]
    """The decider's."""
    starts_s: Sequence[float]
    """The last cold starts, in an order in which a few of them are much as all are; without those
    that were forked, where there is a template."""
    service_s: float
    """The mean time of a request in its replica."""
    ready: int
    """Replicas that there are at second 0."""
    gpus: float = 0.0
    """Of one replica; 0 where it uses none."""
    template: TemplateSupply | None = None
    """None = no start is forked, as far as is known."""

    @property
    def cold_start_s(self) -> float:
        """What a cold start takes."""
        return _middle(self.starts_s)


def learnt(
    detail: Mapping[str, Any],
    log: Sequence[Mapping[str, Any]] = (),
    cold_starts: Sequence[Mapping[str, Any]] = (),
    standby: Mapping[str, Any] | None = None,
) -> Learnt:
    """By the answers of `/api/v1/hotplate/deployments/NAME`, of its `/log` (the decider itself
    remembers little more than the last ten requests), of its `/cold_starts`, and of
    `/api/v1/hotplate/standby`. Raises BadSetting where something that is needed is not known yet,
    or is nothing that arrivals decide."""
    said = f"--predict: {detail['name']}"
    services = [one for one in detail["live"]["services"] if one["revision"] == detail["serving"]]
    if len(services) != 1:
        raise BadSetting(
            f"{said} has {len(services)} services that answer, and only one can be simulated; "
            "leave the flag out"
        )
    if binary_of(detail["labels"]) is not None:
        raise BadSetting(
            f"{said} is turned on and off by queries, whatever requests come; leave the flag out"
        )
    settings = LabelSettings.of(detail["labels"])
    if settings.schedule:
        raise BadSetting(
            f"{said} has a schedule ({settings.schedule}), which the simulator does not follow; "
            "leave the flag out"
        )
    (service,) = services
    name = service["service"]
    memory = detail.get("learnt", {}).get(name) or {}
    service_s = _service_s(log, service) or memory.get("service_s", 0.0)
    if not service_s or not memory.get("cold_starts_s"):
        unknown = "long its replicas take to start" if service_s else "long a request takes"
        raise BadSetting(
            f"{said} has not shown yet how {unknown}; call it, wait a minute, and try again"
        )
    scaling = detail["config"]["services"].get(name, {}).get("scaling")
    policy = policy_from(scaling, service["concurrency"], settings.price)
    try:
        Decider(policy, now=0.0, memory=memory)
    except MemoryInvalid as error:
        raise BadSetting(f"{said}: what was learnt cannot be used: {error}") from error
    lengths_s, template = starts.known(
        [one for one in cold_starts if one["service"] == name],
        memory["cold_starts_s"],
        standby or {},
    )
    there = [one for one in detail["live"]["replicas"] if one["state"] in READY]
    gpus = service.get("gpus") or 0.0
    return Learnt(policy, memory, spread(lengths_s), service_s, len(there), gpus, template)


def _middle(lengths_s: Sequence[float]) -> float:
    """The mean of their middle half: one that was much longer than all others says little."""
    ordered, quarter = sorted(lengths_s), len(lengths_s) // 4
    return fmean(ordered[quarter : len(ordered) - quarter])


def _service_s(log: Sequence[Mapping[str, Any]], service: Mapping[str, Any]) -> float:
    """The mean of the last requests, by lines of demand, the oldest first; 0 = not known."""
    requests, whole_s = 0, 0.0
    for line in reversed(log):
        mine = (line["revision"], line["service"]) == (service["revision"], service["service"])
        if line["kind"] == "demand" and mine and line["service_s"]:
            requests += line["arrived"]
            whole_s += line["arrived"] * line["service_s"]
            if requests >= REQUESTS:
                break
    return whole_s / requests if requests else 0.0


def begun_with(known: Learnt, observed: ObservedRun) -> Learnt:
    """The same with the replicas that there really were at second 0: since it was asked, idle ones
    may have stopped."""
    if not observed.observations:
        return known
    first = observed.observations[0]
    return replace(known, ready=first.ready + first.starting)


def predict(
    known: Learnt, due_s: Sequence[float], duration_s: float, ended_at_s: float | None = None
) -> dict[str, Any]:
    """What these arrivals would cost and how long they would wait, as JSON.

    Replica-seconds are those from second 0 to `ended_at_s`, by default to the last simulated
    answer, or to the end of the duration if that is later. Raises BadSetting where there are no
    arrivals. Those of a closed loop depend on the answers, so none are known.
    """
    if not due_s:
        raise BadSetting(
            "--predict simulates arrivals that are known, and here are none; give --rate or --trace"
        )
    if ended_at_s is None:
        _, fleet = _simulation(known, due_s, math.inf)
        ended_at_s = max(duration_s, fleet.ended_at)
    simulation, fleet = _simulation(known, due_s, ended_at_s)
    spent = fleet.spent(ended_at_s)
    starts = fleet.starts
    simulation.run()
    waits = sorted(fleet.waits_s)
    return {
        "cold_start_s": round(known.cold_start_s, 3),
        "fork_s": round(_middle(known.template.forks_s), 3) if known.template else None,
        "service_s": round(known.service_s, 4),
        "ended_at_s": round(ended_at_s, 3),
        "starts": starts,
        "gpu_s" if known.gpus else "replica_s": {
            name: round(value * (known.gpus or 1.0), 3) for name, value in spent._asdict().items()
        },
        "wait_s": {
            "mean": round(math.fsum(waits) / len(waits), 6),
            **{f"p{p}": round(percentile(waits, p), 6) for p in (50, 95, 99)},
        },
    }


def beside(prediction: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    """The prediction with what was measured, and how far off it was: `off` is predicted to measured
    less 1, and of the mean wait also seconds; null where nothing was measured.

    What a request waited is its latency less the service time of the prediction.
    """
    name = "gpu_s" if "gpu_s" in prediction else "replica_s"
    used = report.get(name)
    real_s = sum(used.values()) if used else None
    latency = report["latency_s"]
    wait_s = None if latency is None else max(0.0, latency["mean"] - prediction["service_s"])
    predicted_s, predicted_wait_s = sum(prediction[name].values()), prediction["wait_s"]["mean"]
    return {
        **prediction,
        "measured": {name: real_s, "wait_s": wait_s, "starts": len(report["cold_starts"])},
        "off": {
            name: _off(predicted_s, real_s),
            "wait": _off(predicted_wait_s, wait_s),
            "wait_s": None if wait_s is None else round(predicted_wait_s - wait_s, 4),
        },
    }


def _simulation(
    known: Learnt, due_s: Sequence[float], until_s: float
) -> tuple[Simulation, SimulatedDeployment]:
    """Simulated up to then."""
    arrivals = RequestTrace("", list(due_s), [known.service_s] * len(due_s))
    scaler = OurScaler(known.policy, known.cold_start_s, now=0.0, memory=known.memory)
    template = None if known.template is None else SimulatedTemplate(known.template)
    fleet = SimulatedDeployment(
        "",
        arrivals,
        known.policy.concurrency,
        scaler,
        most=known.policy.max_replicas,
        template=template,
    )
    fleet.begin_with(known.ready)
    hardware = Hardware(known.cold_start_s, starts_s=known.starts_s)
    simulation = Simulation([fleet], hardware)
    simulation.run(until_s)
    return simulation, fleet


def _off(predicted: float, measured: float | None) -> float | None:
    return round(predicted / measured - 1, 4) if measured else None
