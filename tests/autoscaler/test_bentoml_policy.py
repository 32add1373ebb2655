from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hotplate.autoscaler.bentoml_policy import policy_from
from hotplate.autoscaler.errors import ScalingInvalid
from hotplate.autoscaler.policy import Behavior, Policy


def test_every_field_is_taken_over() -> None:
    policy = {
        "scale_up_stabilization_window": 180,
        "scale_down_stabilization_window": 0,
        "scale_up_behavior": "fast",
        "scale_down_behavior": "disabled",
        "metrics": [{"type": "concurrency", "value": 3}],
    }
    scaling = {"min_replicas": 0, "max_replicas": 5, "policy": policy}
    assert policy_from(scaling, 8, price_gpu_s=300.0) == Policy(
        0, 5, 8, 180, 0, Behavior.FAST, Behavior.DISABLED, 300.0
    )


NULLS: dict[str, Any] = {
    "min_replicas": None,
    "max_replicas": None,
    "policy": {"scale_up_behavior": None, "scale_down_stabilization_window": None},
}


@pytest.mark.parametrize("scaling", [None, {}, {"policy": None}, NULLS])
def test_what_is_left_out_or_null_is_ours(scaling: dict[str, Any] | None) -> None:
    assert policy_from(scaling, 2) == Policy(1, 1, 2)


def test_the_maximum_defaults_to_the_minimum_and_at_least_one() -> None:
    assert policy_from({"min_replicas": 3}, 1).max_replicas == 3
    assert policy_from({"min_replicas": 0}, 1).max_replicas == 1


@pytest.mark.parametrize(
    "scaling, message",
    [
        ({"max_replicas": 0}, "scaling.max_replicas: 0 is below min_replicas 1"),
        ({"min_replicas": 0, "max_replicas": 0}, "scaling.max_replicas: 0 is below 1"),
        ({"min_replicas": -1}, "scaling.min_replicas: -1 is below 0"),
        ({"min_replicas": 10**400}, f"scaling.min_replicas: 1{'0' * 79} is above 9007199254740992"),
        ({"min_replicas": True}, "scaling.min_replicas: True is not a whole number"),
        ({"max_replicas": "3"}, "scaling.max_replicas: '3' is not a whole number"),
        ({"policy": []}, "scaling.policy: [] is not a mapping"),
        (
            {"policy": {"scale_up_stabilization_window": 3601}},
            "scaling.policy.scale_up_stabilization_window: 3601 is above 3600 seconds",
        ),
        (
            {"policy": {"scale_down_stabilization_window": -1}},
            "scaling.policy.scale_down_stabilization_window: -1 is below 0",
        ),
        (
            {"policy": {"scale_up_behavior": "fats"}},
            "scaling.policy.scale_up_behavior: 'fats' is not one of fast, stable, disabled; "
            "did you mean 'fast'?",
        ),
        ({"policy": {"scale_down_behavior": 7}}, "scaling.policy.scale_down_behavior: 7 is not"),
    ],
)
def test_a_wrong_field_is_named_with_its_path(scaling: dict[str, Any], message: str) -> None:
    with pytest.raises(ScalingInvalid) as caught:
        policy_from(scaling, 1)
    assert str(caught.value).startswith(message)
    assert message.startswith(caught.value.path)


def test_the_readme_explains_every_field_and_behavior() -> None:
    readme = (Path(__file__).parents[2] / "autoscaler" / "README.md").read_text()
    fields = ("scale_up_behavior", "scale_down_behavior", "metrics", "min_replicas", "max_replicas")
    windows = ("scale_up_stabilization_window", "scale_down_stabilization_window")
    assert [word for word in (*fields, *windows, *Behavior) if f"{word}`" not in readme] == []
