"""How a control plane is told of its cluster: the table `[cluster]` of `hotplate.toml`.

The chart writes it. An unknown key is refused with the nearest that there is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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
_PART = "[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
_URL = re.compile(rf"https?://\*(?P<host>(\.{_PART})+)(:(?P<port>[0-9]{{1,5}}))?")
_NAMESPACE = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VERSION = re.compile(r"3\.[0-9]+(\.[0-9]+)?")
_MOST_HOST = 253 - 63
"""Characters that a host name has beside its first part."""
_POLICIES = ("Always", "IfNotPresent", "Never")
_RUNTIMES = '[{python = "3.11", image = "NAME:TAG"}], one at least'


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


def load_cluster(file: Path, environ: Mapping[str, str]) -> ClusterTable:
    """The table of a settings file; variables cannot say lists and tables. Raises BadSetting, also
    for a variable that is to say one of its keys."""
    for variable in environ:
        if variable.startswith(f"HOTPLATE_{TABLE.upper()}__"):
            raise BadSetting(
                f"{variable} has no effect: write it into the table [{TABLE}] of {file}"
            )
    values = dict(file_table(file, TABLE))
    names = [each.name for each in fields(ClusterTable)]
    for key in values:
        known(key, names, f"{file}: [{TABLE}] {key}")
    for key in ("url", "runtimes"):
        values.setdefault(key, ())
    for key, (is_good, allowed) in _ALLOWED.items():
        if key in values and not is_good(value := values[key]):
            shown = f"{value!r:.80} is not allowed" if value else "it is missing"
            raise BadSetting(f"{file}: [{TABLE}] {key}: {shown}; it must be {allowed}")
    values["runtimes"] = [RuntimeImage(**each) for each in values["runtimes"]]
    table = ClusterTable(**values)
    try:
        _ = table.bounds
    except BadQuantity as error:
        raise BadSetting(f"{file}: [{TABLE}] capacity: {error}") from error
    return table


def _is_url(value: object) -> bool:
    found = _URL.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return False
    return len(found["host"]) <= _MOST_HOST and 0 < int(found["port"] or 1) <= 65535


def _are_runtimes(value: object) -> bool:
    return bool(value) and isinstance(value, list) and all(map(_is_runtime, value))


def _is_runtime(value: object) -> bool:
    if not (_are_texts(value) and isinstance(value, dict) and value.keys() == {"python", "image"}):
        return False
    return bool(_VERSION.fullmatch(value["python"]) and re.fullmatch(r"\S+", value["image"]))


def _are_texts(value: Any) -> bool:
    """A list of texts, or a table of them."""
    texts = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list) and all(isinstance(each, str) for each in texts)


def _are_tables(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _are_selectors(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(each, dict) and _are_texts(each) for each in value.values()
    )


_ALLOWED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "url": (
        _is_url,
        f"a URL whose host begins with '{STAR}.', e.g. https://{STAR}.models.example.com",
    ),
    "release": (
        lambda value: isinstance(value, str) and bool(_NAMESPACE.fullmatch(value)),
        "the name of a namespace",
    ),
    "runtimes": (_are_runtimes, _RUNTIMES),
    "pull_policy": (lambda value: value in _POLICIES, f"one of {', '.join(_POLICIES)}"),
    "pull_secrets": (
        lambda value: isinstance(value, list) and _are_texts(value),
        "a list of names of Secrets",
    ),
    "node_selector": (
        lambda value: isinstance(value, dict) and _are_texts(value),
        "a table of labels of nodes",
    ),
    "tolerations": (_are_tables, "a list of tables"),
    "instance_selectors": (_are_selectors, "a table with a table of labels for instance types"),
}
"""What each key may be; of amounts it is said where they are read."""
