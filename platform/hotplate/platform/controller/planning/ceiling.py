"""The most that one replica can have here; a larger request is capped or refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hotplate.autoscaler.sharing.amounts import Amounts, amount_text, over
from hotplate.deploy.local.placement import DEFAULT_MEMORY_BYTES
from hotplate.deploy.workload import Resources
from hotplate.platform.instance_type import InstanceType

_DIGITS = 5
"""Enough digits to tell 16.49 GiB from 16.48 GiB."""


@dataclass(frozen=True)
class Ceiling:
    """What one replica may request, since no node has more, and what it is counted as."""

    most: Resources
    """The largest amount of each resource that any node has."""
    shares_cpus: bool = False
    """Whether a request for more CPUs than there are is counted as all of them."""
    memory_note: str = ""
    """An explanation that messages put after the available memory."""

    def cap(self, requested: Resources) -> Resources:
        """What a replica that requests this is counted as."""
        if self.shares_cpus and requested.cpus > self.most.cpus:
            return replace(requested, cpus=self.most.cpus)
        return requested

    def cap_note(self, requested: Resources) -> str:
        """How the request was capped, as the end of a sentence; "" = it was not."""
        capped = self.cap(requested)
        if capped == requested:
            return ""
        cpus = Amounts._fields.index("cpus")
        return (
            f"asks for {amount_text(cpus, requested.cpus)} and this machine has "
            f"{amount_text(cpus, capped.cpus)}: it is counted as {capped.cpus:.3g}, and shares "
            "them with other replicas that need them"
        )

    def refusal(self, requested: Resources, types: Mapping[str, InstanceType]) -> str:
        """Why no replica of this size can ever run, and the nearest of `types`; "" = one can."""
        needed, most = _amounts(self.cap(requested)), _amounts(self.most)
        beyond = [d for d, amount in enumerate(needed) if over(amount, most[d])]
        if not beyond:
            return ""
        requests = " and ".join(amount_text(d, needed[d], _DIGITS) for d in beyond)
        has = " and ".join(amount_text(d, most[d], _DIGITS) for d in beyond)
        if "memory" in has:  # memory is the last of the dimensions
            has += self.memory_note
        return (
            f"a replica asks for {requests}, and no machine here has more than {has}; "
            f"ask for less{_largest(requested, types)}"
        )


def _amounts(resources: Resources) -> Amounts:
    memory_bytes = resources.memory_bytes or DEFAULT_MEMORY_BYTES
    return Amounts(resources.gpus, resources.cpus, memory_bytes)


def _largest(requested: Resources, types: Mapping[str, InstanceType]) -> str:
    """The largest type of the requested kind: the nearest to a request that exceeds all."""
    sizes = {name: type_.resources for name, type_ in types.items()}
    alike = {n: has for n, has in sizes.items() if bool(has.gpus) == bool(requested.gpus)} or sizes
    if not alike:
        return ""
    name, has = max(alike.items(), key=lambda item: _amounts(item[1]))
    amounts = ", ".join(amount_text(d, amount) for d, amount in enumerate(_amounts(has)) if amount)
    return f": the largest instance type is {name!r} ({amounts})"
