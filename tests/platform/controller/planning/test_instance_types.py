"""Which instance types a machine has, and what is said of them."""

from __future__ import annotations

import pytest

from hotplate.deploy.quantities import GIB
from hotplate.deploy.workload import Resources
from hotplate.platform.controller.planning.instance_types import (
    instance_type_json,
    instance_types,
    retired,
    sizes,
)
from hotplate.platform.instance_type import InstanceType


def test_types_are_powers_of_two_up_to_the_whole_machine() -> None:
    types = sizes(Resources(4, 7 * GIB, 2), "H200")
    assert {name: type_.resources for name, type_ in types.items()} == {
        "cpu.1": Resources(1, 2 * GIB),
        "cpu.2": Resources(2, 4 * GIB),
        "cpu.4": Resources(4, 7 * GIB),
        "gpu.H200.1": Resources(2, 7 * GIB // 2, 1),
        "gpu.H200.2": Resources(4, 7 * GIB, 2),
    }
    assert [type_.gpu_type for type_ in types.values()] == ["", "", "", "H200", "H200"]
    assert list(sizes(Resources(3, GIB, 3))) == ["cpu.1", "cpu.2", "gpu.1", "gpu.2"]


@pytest.mark.parametrize(
    ("name", "resources"),
    [
        ("cpu.4", Resources(4, 8 * GIB)),
        ("gpu.2", Resources(gpus=2)),
        ("gpu.H200.2", Resources(gpus=2)),
        ("large", None),
        ("gpu.large", None),
    ],
)
def test_a_retired_type_has_the_resources_that_its_name_says(
    name: str, resources: Resources | None
) -> None:
    assert retired(name) == resources


def test_a_type_is_shown_with_what_it_has() -> None:
    amounts = {"cpu": "1.5", "memory": "2Gi", "gpu": None}
    assert instance_type_json("small", InstanceType(Resources(1.5, 2 * GIB))) == {
        "display_name": "small",
        "description": "1.5 cpu, 2Gi memory",
        "config": {
            "group": "cpu",
            "price": "0",
            "resources": {"requests": amounts, "limits": amounts},
            "gpu_config": None,
        },
    }
    for gpu_name, shown in (("H200", "H200"), ("", "gpu")):
        with_gpu = instance_type_json(
            "large", InstanceType(Resources(8, 64 * GIB, 1), gpu_name, 2.5)
        )
        assert with_gpu["config"]["price"] == "2.5"
        assert with_gpu["description"] == "8 cpu, 64Gi memory, 1 gpu"
        assert with_gpu["config"]["group"] == "gpu"
        assert with_gpu["config"]["gpu_config"] == {"type": shown, "memory": ""}


def test_types_are_listed_in_their_order() -> None:
    types = {"b": InstanceType(Resources(1, GIB)), "a": InstanceType(Resources(2, GIB))}
    assert [one["display_name"] for one in instance_types(types)] == ["b", "a"]
