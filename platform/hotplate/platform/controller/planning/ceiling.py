"""The most that one replica can have here: what is more counts as that, or is refused; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hotplate.autoscaler.sharing.amounts import Amounts, over, said
from hotplate.deploy.local.placement import DEFAULT_MEMORY_BYTES
from hotplate.deploy.workload import Resources

_DIGITS = 5
"""So that 16.49 GiB are told from 16.48."""


@dataclass(frozen=True)
class Ceiling:
    """What one replica may ask for, since no node has more, and what it counts for."""

    most: Resources
    """Of each, what the node has that has most of it."""
    shares_cpus: bool = False
    """Whether more CPUs than there are count as all of them."""
    memory_note: str = ""
    """What stands behind the memory that there is."""

    def cap(self, asked: Resources) -> Resources:
        """What a replica counts for that asks for this."""
        if self.shares_cpus and asked.cpus > self.most.cpus:
            return replace(asked, cpus=self.most.cpus)
        return asked

    def capped(self, asked: Resources) -> str:
        """That it counts for less than it asks for, as the end of a sentence; "" = it does not."""
        counts = self.cap(asked)
        if counts == asked:
            return ""
        cpus = Amounts._fields.index("cpus")
        return (
            f"asks for {said(cpus, asked.cpus)} and this machine has {said(cpus, counts.cpus)}: "
            f"it counts as {counts.cpus:.3g}, which others share where they need them"
        )

    def refusal(self, asked: Resources, types: Mapping[str, Resources]) -> str:
        """Why no replica of this size can ever run, and the nearest of `types`; "" = one can."""
        wanted, most = _amounts(self.cap(asked)), _amounts(self.most)
        beyond = [d for d, amount in enumerate(wanted) if over(amount, most[d])]
        if not beyond:
            return ""
        asks = " and ".join(said(d, wanted[d], _DIGITS) for d in beyond)
        has = " and ".join(said(d, most[d], _DIGITS) for d in beyond)
        if "memory" in has:  # the last of them
            has += self.memory_note
        return (
            f"a replica asks for {asks}, and no machine here has more than {has}; "
            f"ask for less{_largest(asked, types)}"
        )


def _amounts(resources: Resources) -> Amounts:
    memory_bytes = resources.memory_bytes or DEFAULT_MEMORY_BYTES
    return Amounts(resources.gpus, resources.cpus, memory_bytes)


def _largest(asked: Resources, types: Mapping[str, Resources]) -> str:
    """The largest type of the kind that is asked for, which is nearest to what is more than all."""
    alike = {n: has for n, has in types.items() if bool(has.gpus) == bool(asked.gpus)} or types
    if not alike:
        return ""
    name, has = max(alike.items(), key=lambda item: _amounts(item[1]))
    amounts = ", ".join(said(d, amount) for d, amount in enumerate(_amounts(has)) if amount)
    return f": the largest instance type is {name!r} ({amounts})"
