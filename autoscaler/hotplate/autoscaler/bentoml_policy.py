"""A deployment's `scaling` block, as the bentoml client sends it, read as a policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from hotplate.autoscaler.errors import ScalingInvalid
from hotplate.autoscaler.policy import Behavior, Policy

LONGEST_WINDOW_S = 3600
"""BentoCloud's upper bound of a stabilisation window."""
WHOLE_MAX = 2**53
"""What a float can still count."""


def policy_from(
    scaling: Mapping[str, Any] | None, concurrency: int, price_gpu_s: float = Policy.price_gpu_s
) -> Policy:
    """The policy of one service.

    `scaling`: `{min_replicas, max_replicas, policy: {scale_up_stabilization_window,
    scale_down_stabilization_window, scale_up_behavior, scale_down_behavior, metrics}}`; every
    value, and each mapping, may be null. `metrics` has no effect: demand is counted, and the client
    gives its types no meaning.
    `concurrency`: slots of one replica, at least 1. `price_gpu_s`: at least 0.
    Raises `ScalingInvalid`, whose message begins with the path of the wrong field.
    """
    scaling = _mapping(scaling, "scaling")
    windows = _mapping(scaling.get("policy"), "scaling.policy")
    least = _whole(scaling.get("min_replicas"), "scaling.min_replicas")
    most = _whole(scaling.get("max_replicas"), "scaling.max_replicas")
    least = 1 if least is None else least
    most = max(least, 1) if most is None else most
    if most < least:
        raise ScalingInvalid("scaling.max_replicas", f"{most} is below min_replicas {least}")
    if most < 1:
        raise ScalingInvalid("scaling.max_replicas", f"{most} is below 1; terminate it instead")
    if concurrency < 1:
        raise ScalingInvalid("traffic.concurrency", f"{concurrency} is below 1")
    if not (math.isfinite(price_gpu_s) and price_gpu_s >= 0):
        raise ScalingInvalid("price", f"{price_gpu_s} is not a number of GPU-seconds from 0 on")
    return Policy(
        min_replicas=least,
        max_replicas=most,
        concurrency=concurrency,
        scale_up_window_s=_window(windows, "scale_up_stabilization_window"),
        scale_down_window_s=_window(windows, "scale_down_stabilization_window"),
        scale_up_behavior=_behavior(windows, "scale_up_behavior"),
        scale_down_behavior=_behavior(windows, "scale_down_behavior"),
        price_gpu_s=price_gpu_s,
    )


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ScalingInvalid(path, f"{value!r:.80} is not a mapping")
    return value


def _whole(value: object, path: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ScalingInvalid(path, f"{value!r:.80} is not a whole number")
    if value < 0:
        raise ScalingInvalid(path, f"{value!r:.80} is below 0")
    if value > WHOLE_MAX:
        raise ScalingInvalid(path, f"{value!r:.80} is above {WHOLE_MAX}")
    return value


def _window(policy: Mapping[str, Any], field: str) -> float | None:
    path = f"scaling.policy.{field}"
    value = _whole(policy.get(field), path)
    if value is not None and value > LONGEST_WINDOW_S:
        raise ScalingInvalid(path, f"{value} is above {LONGEST_WINDOW_S} seconds")
    return value


def _behavior(policy: Mapping[str, Any], field: str) -> Behavior | None:
    value = policy.get(field)
    if value is None:
        return None
    if value in tuple(Behavior):
        return Behavior(value)
    nearest = get_close_matches(str(value)[:80], tuple(Behavior), n=1, cutoff=0.4)
    hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
    known = ", ".join(Behavior)
    raise ScalingInvalid(f"scaling.policy.{field}", f"{value!r:.80} is not one of {known}{hint}")
