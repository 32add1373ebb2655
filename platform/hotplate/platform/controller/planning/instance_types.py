"""The instance types that `--instance-type` may name on this installation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotplate.deploy.quantities import GIB
from hotplate.deploy.workload import Resources


def sizes(whole: Resources, gpu_name: str = "") -> dict[str, Resources]:
    """Instance types by name: powers of two of CPUs and of GPUs, as many as the machine has.

    A CPU comes with 2 GiB of memory, a GPU with its even share of CPUs and memory.
    """
    types: dict[str, Resources] = {}
    cpus = 1
    while cpus <= whole.cpus:
        types[f"cpu.{cpus}"] = Resources(cpus, min(2 * GIB * cpus, whole.memory_bytes))
        cpus *= 2
    gpus = 1
    while gpus <= whole.gpus:
        share = gpus / whole.gpus
        name = f"gpu.{gpu_name}.{gpus}" if gpu_name else f"gpu.{gpus}"
        types[name] = Resources(whole.cpus * share, int(whole.memory_bytes * share), gpus)
        gpus *= 2
    return types


def retired(name: str) -> Resources:
    """The resources of a type that is no longer offered: a stored deployment may name one after a
    move to a smaller machine."""
    kind, _, count = name.rpartition(".")
    if kind == "cpu":
        return Resources(float(count), 2 * GIB * int(count))
    return Resources(gpus=float(count))


def instance_type_json(name: str, resources: Resources, gpu_name: str = "") -> dict[str, Any]:
    """One instance type as BentoCloud shows it."""
    amounts = {
        "cpu": f"{resources.cpus:g}",
        "memory": f"{resources.memory_bytes / GIB:g}Gi",
        "gpu": f"{resources.gpus:g}" if resources.gpus else None,
    }
    gpu = {"type": gpu_name or "gpu", "memory": ""} if resources.gpus else None
    return {
        "display_name": name,
        "description": ", ".join(f"{amount} {unit}" for unit, amount in amounts.items() if amount),
        "config": {
            "group": "gpu" if resources.gpus else "cpu",
            "price": "0",
            "resources": {"requests": amounts, "limits": amounts},
            "gpu_config": gpu,
        },
    }


def instance_types(types: Mapping[str, Resources]) -> list[dict[str, Any]]:
    """The types as BentoCloud's JSON, in the order of the settings."""
    return [instance_type_json(name, resources) for name, resources in types.items()]
