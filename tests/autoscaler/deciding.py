"""Deciders in known states, and steps that observe demand and decide."""

from __future__ import annotations

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.policy import Decision, Demand, Policy, Replicas

IDLE = Demand(service_s=1.0)
ONE = Demand(in_flight=1, service_s=1.0)


def asleep(policy: Policy) -> Decider:
    """A decider that knows a cold start of 4 s and sees no replica and no demand at 0 s."""
    decider = Decider(policy, now=0.0)
    decider.record_cold_start(4.0)
    decider.observe(IDLE, 0.0)
    decider.decide(Replicas(), 0.0)
    return decider


def decided(decider: Decider, demand: Demand | None, replicas: Replicas, now: float) -> Decision:
    decider.observe(demand, now)
    return decider.decide(replicas, now)


def after(decider: Decider, demand: Demand | None, ready: int, now: float) -> Decision:
    return decided(decider, demand, Replicas(ready), now)


def idle_since(policy: Policy, at: float, ready: int = 1) -> Decider:
    """A decider whose `ready` replicas were full until `at`."""
    decider = asleep(policy)
    after(decider, Demand(in_flight=ready * policy.concurrency, service_s=1.0), ready, 1.0)
    after(decider, IDLE, ready, at)
    return decider
