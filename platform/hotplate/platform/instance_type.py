"""An instance type, and those that an operator offers: tables of `hotplate.toml`.

[instance_types."gpu.l4.1"]
cpus = 8
memory = "32GiB"
gpus = 1
gpu_type = "L4"
price = 0.8
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotplate.deploy import quantities
from hotplate.deploy.errors import BadQuantity
from hotplate.deploy.workload import Resources
from hotplate.platform.errors import BadSetting
from hotplate.platform.settings import file_table, known

TABLE = "instance_types"
KEYS = ("cpus", "memory", "gpus", "gpu_type", "price")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class InstanceType:
    """What one replica requests on an instance of this type, and what is said of it."""

    resources: Resources
    gpu_type: str = ""
    price: float = 0.0
    """Of one hour, in whatever the operator counts."""


def load_instance_types(file: Path) -> dict[str, InstanceType]:
    """Those of the file, by name and in its order; none = the machine's sizes are offered.

    Raises BadSetting for an unknown key (with the nearest one that exists) or a bad value.
    """
    types = {}
    for name, values in file_table(file, TABLE).items():
        where = f"{file}: [{TABLE}.{name!r}]"
        if not _NAME.fullmatch(name):
            raise BadSetting(f"{where}: a name has 1 to 63 letters, digits, '.', '-' and '_'")
        if not isinstance(values, dict):
            raise BadSetting(f'{where} must be a table: [{TABLE}."{name}"]')
        try:
            types[name] = _instance_type(values, where)
        except BadQuantity as error:
            raise BadSetting(f"{where}: {error}") from error
    return types


def _instance_type(values: Mapping[str, Any], where: str) -> InstanceType:
    for key in values:
        known(key, list(KEYS), f"{where} {key}")
    for key in ("cpus", "memory"):
        if key not in values:
            raise BadSetting(f"{where}: {key} is missing; say how much a replica gets")
    resources = Resources(
        quantities.cpus(values["cpus"]),
        quantities.memory_bytes(values["memory"]),
        quantities.gpus(values.get("gpus", 0)),
    )
    gpu_type, price = values.get("gpu_type", ""), values.get("price", 0)
    _check(where, "cpus", values["cpus"], resources.cpus > 0, "more than 0")
    _check(where, "memory", values["memory"], resources.memory_bytes > 0, "more than 0")
    named = isinstance(gpu_type, str) and (not gpu_type or resources.gpus > 0)
    _check(where, "gpu_type", gpu_type, named, "a text, and empty where there are no gpus")
    number = isinstance(price, int | float) and not isinstance(price, bool)
    _check(where, "price", price, number and 0 <= price < math.inf, "a number of 0 or more")
    return InstanceType(resources, gpu_type, float(price))


def _check(where: str, key: str, value: object, good: bool, allowed: str) -> None:
    if not good:
        raise BadSetting(f"{where}: {key} {value!r} is not allowed; it must be {allowed}")
