"""The instance types that `--instance-type` may name on this installation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotplate.deploy.quantities import GIB
from hotplate.deploy.workload import Resources
from hotplate.platform.instance_type import InstanceType


def sizes(whole: Resources, gpu_name: str = "") -> dict[str, InstanceType]:
    """Instance types by name: powers of two of CPUs and of GPUs, as many as the machine has.

    A CPU comes with 2 GiB of memory, a GPU with its even share of CPUs and memory.
    """
    types: dict[str, InstanceType] = {}
    cpus = 1
    while cpus <= whole.cpus:
        memory_bytes = min(2 * GIB * cpus, whole.memory_bytes)
        types[f"cpu.{cpus}"] = InstanceType(Resources(cpus, memory_bytes))
        cpus *= 2
    gpus = 1
    while gpus <= whole.gpus:
        share = gpus / whole.gpus
        name = f"gpu.{gpu_name}.{gpus}" if gpu_name else f"gpu.{gpus}"
        resources = Resources(whole.cpus * share, int(whole.memory_bytes * share), gpus)
        types[name] = InstanceType(resources, gpu_name)
        gpus *= 2
    return types


def retired(name: str) -> Resources | None:
    """The resources of a type that is no longer offered: a stored deployment may name one after a
    move to a smaller machine. None where its name does not say them."""
    kind, _, count = name.rpartition(".")
    if not kind or not (count.isascii() and count.isdecimal()):
        return None
    if kind == "cpu":
        return Resources(float(count), 2 * GIB * int(count))
    return Resources(gpus=float(count))


def instance_type_json(name: str, type_: InstanceType) -> dict[str, Any]:
    """One instance type as BentoCloud shows it."""
    resources = type_.resources
    amounts = {
        "cpu": f"{resources.cpus:g}",
        "memory": f"{resources.memory_bytes / GIB:g}Gi",
        "gpu": f"{resources.gpus:g}" if resources.gpus else None,
    }
    gpu = {"type": type_.gpu_type or "gpu", "memory": ""} if resources.gpus else None
    return {
        "display_name": name,
        "description": ", ".join(f"{amount} {unit}" for unit, amount in amounts.items() if amount),
        "config": {
            "group": "gpu" if resources.gpus else "cpu",
            "price": f"{type_.price:.10g}",
            "resources": {"requests": amounts, "limits": amounts},
            "gpu_config": gpu,
        },
    }


def instance_types(types: Mapping[str, InstanceType]) -> list[dict[str, Any]]:
    """The types as BentoCloud's JSON, in the order of the settings."""
    return [instance_type_json(name, type_) for name, type_ in types.items()]
