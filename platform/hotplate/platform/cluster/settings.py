"""How a control plane is told of its cluster: the table `[cluster]` of `hotplate.toml`.

The chart writes it. An unknown key is refused with the nearest that there is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hotplate.deploy import quantities
from hotplate.deploy.errors import BadQuantity
from hotplate.deploy.workload import Resources
from hotplate.platform.errors import BadSetting
from hotplate.platform.settings import file_table, known
from hotplate.platform.spec.deployment_host import STAR
from hotplate.serving.replica.pods.runtimes import RuntimeImage

TABLE = "cluster"
_KINDS: Mapping[str, tuple[type, str]] = {
    "url": (str, "a text"),
    "release": (str, "a text"),
    "runtimes": (list, "a list of tables"),
    "pull_policy": (str, "a text"),
    "pull_secrets": (list, "a list of texts"),
    "node_selector": (dict, "a table"),
    "tolerations": (list, "a list of tables"),
    "instance_selectors": (dict, "a table of tables"),
}


@dataclass(frozen=True)
class ClusterTable:
    """All keys of the table."""

    url: str = ""
    """Where deployments are called; a star stands for each one's name."""
    release: str = "hotplate"
    """The namespace of the installation."""
    runtimes: Sequence[RuntimeImage] = ()
    pull_policy: str = "IfNotPresent"
    pull_secrets: Sequence[str] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Of all replicas and builds."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    instance_selectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of replicas, by the instance type that their user named."""
    capacity_cpus: float | str | None = None
    """What there may ever be; None = as many nodes as the cluster adds."""
    capacity_memory: int | str | None = None
    capacity_gpus: float | str | None = None

    @property
    def bounds(self) -> Resources | None:
        """What all replicas may ever have; of what nothing is said, as much as they want."""
        said = (self.capacity_cpus, self.capacity_memory, self.capacity_gpus)
        if all(amount is None for amount in said):
            return None
        cpus, memory, gpus = said
        return Resources(
            ENDLESS.cpus if cpus is None else quantities.cpus(cpus),
            ENDLESS.memory_bytes if memory is None else quantities.memory_bytes(memory),
            ENDLESS.gpus if gpus is None else quantities.gpus(gpus),
        )


ENDLESS = Resources(1e9, 1 << 60, 1e9)
"""More than any cluster has."""


def load_cluster(file: Path) -> ClusterTable:
    """The table of a settings file. Raises BadSetting."""
    values = dict(file_table(file, TABLE))
    names = [each.name for each in fields(ClusterTable)]
    for key, value in values.items():
        where = f"{file}: [{TABLE}] {known(key, names, f'{file}: [{TABLE}] {key}')}"
        kind, called = _KINDS.get(key, (object, ""))
        if not isinstance(value, kind):
            raise BadSetting(f"{where}: {value!r} is not {called}")
    if not re.fullmatch(r"https?://\*\.[A-Za-z0-9.-]+(:\d{1,5})?", str(values.get("url", ""))):
        raise BadSetting(
            f"{file}: [{TABLE}] url: {values.get('url', '')!r} is not allowed; it must be a URL "
            f"whose host begins with '{STAR}.', e.g. https://{STAR}.models.example.com"
        )
    try:
        values["runtimes"] = [RuntimeImage(**each) for each in values.get("runtimes", ())]
        table = ClusterTable(**values)
        _ = table.bounds
    except TypeError:
        raise BadSetting(
            f'{file}: [{TABLE}] runtimes: write [{{python = "3.11", image = "NAME:TAG"}}]'
        ) from None
    except BadQuantity as error:
        raise BadSetting(f"{file}: [{TABLE}] capacity: {error}") from error
    return table
