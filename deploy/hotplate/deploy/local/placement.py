"""Which waiting replicas fit on this machine now, and on which of its GPUs.

First come, first served: the oldest is tried first, and one that does not fit does not hold up
younger ones that do (as in Kubernetes). Memory and GPUs are never promised twice; CPUs are where
the machine's are shared. A replica that asks for no memory is counted with what is its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from hotplate.deploy.quantities import GIB
from hotplate.deploy.workload import Resources, WorkloadKey

DEFAULT_MEMORY_BYTES = 512 << 20
"""Counted for a replica that asks for no memory, until one of its service has been measured: about
what a small Python service takes."""

_OTHERS = WorkloadKey("", "", 0, "")
"""What another organization has, to whoever is not of it."""
_DUST = 1e-9
"""Rounding of sums such as 0.1 + 0.2 must not cost a place."""


@dataclass(frozen=True)
class Capacity:
    """What a machine has to give."""

    cpus: float
    memory_bytes: int
    gpus: tuple[int, ...] = ()
    """Indices of its GPUs."""
    arena_bytes: int = 0
    """Memory that is not here because model files have it."""
    cpu_overcommit: float = 1.0
    """How many times its CPUs are promised; one replica gets no more than there are."""

    @property
    def promised_cpus(self) -> float:
        """What all replicas together may ask for."""
        return self.cpus * self.cpu_overcommit

    @property
    def arena_note(self) -> str:
        """What stands behind the memory that there is; "" where model files have none."""
        if not self.arena_bytes:
            return ""
        return f" beside the {self.arena_bytes / GIB:.1f} for model files (arena_bytes)"


@dataclass(frozen=True)
class Place:
    """What one replica holds of the machine, from its start until it is gone."""

    key: WorkloadKey
    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: tuple[int, ...] = ()
    gpu_share: float = 0.0
    """Share of each of its GPUs: 1 = alone on it."""


@dataclass(frozen=True)
class Expected:
    """What a replica that asks for no memory is counted with until it is measured, in bytes."""

    alone_bytes: int = DEFAULT_MEMORY_BYTES
    """If it shares nothing."""
    forked_bytes: int = 0
    """If a template forks it, which therefore has to stay; 0 = none does."""


@dataclass(frozen=True)
class Applicant:
    """A replica that waits for a place."""

    id: str
    key: WorkloadKey
    resources: Resources
    since: float
    """When it was created, on any clock: the oldest goes first."""
    expected: Expected = Expected()


@dataclass(frozen=True)
class Placement:
    """The outcome per replica id: who starts where, and why the others wait."""

    placed: dict[str, Place] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)


def place(
    applicants: Iterable[Applicant],
    taken: Iterable[Place],
    capacity: Capacity,
    warm_bytes: int = 0,
    *,
    measured: bool = True,
) -> Placement:
    """Give places to those of `applicants` that fit beside what is `taken`.

    A replica that asks for no CPU is counted with none (best effort), for no memory with what is
    expected of it. Warm processes take `warm_bytes` and make way for replicas, but not where one
    is counted as a fork. Nor do they for one that could be forked as long as what is taken has not
    been `measured`: forks that start now may turn out to leave room for it.
    """
    outcome = Placement()
    taken_places = list(taken)
    for one in sorted(applicants, key=lambda each: (each.since, each.id)):
        found: Place | str = ""
        for memory_bytes, beside_bytes in _ways(one, warm_bytes, measured):
            left_bytes = capacity.memory_bytes - beside_bytes
            found = _fit(
                one, memory_bytes, taken_places, replace(capacity, memory_bytes=left_bytes)
            )
            if isinstance(found, Place):
                outcome.placed[one.id] = found
                taken_places.append(found)
                break
        else:
            outcome.waiting[one.id] = str(found)
    return outcome


def _ways(one: Applicant, warm_bytes: int, measured: bool) -> Iterable[tuple[int, int]]:
    """With how much memory it may start, and what has to stay beside that; the best first."""
    expected = one.expected
    alone = (one.resources.memory_bytes or expected.alone_bytes, 0)
    if one.resources.memory_bytes or not expected.forked_bytes:
        return (alone,)
    forked = (expected.forked_bytes, warm_bytes)
    return (forked, alone) if measured else (forked,)


def _fit(
    one: Applicant, memory_bytes: int, taken_places: Sequence[Place], capacity: Capacity
) -> Place | str:
    """Its place, or why it waits."""
    cpus, gpus = one.resources.cpus, one.resources.gpus
    chosen = _choose_gpus(gpus, taken_places, capacity.gpus)
    seen = _as_seen_by(one.key.organization, taken_places)
    shortages = [
        *([] if chosen is not None else [_gpu_shortage(gpus, seen, capacity)]),
        *_cpu_shortage(cpus, seen, capacity),
        *_memory_shortage(memory_bytes, seen, capacity),
    ]
    if chosen is None or shortages:
        never = (
            gpus > len(capacity.gpus)
            or cpus > capacity.cpus + _DUST
            or memory_bytes > capacity.memory_bytes
        )
        advice = "ask for less, or use a larger machine" if never else "it waits for room"
        return f"needs {'; '.join(shortages)}; {advice}"
    return Place(one.key, cpus, memory_bytes, chosen, min(gpus, 1.0))


def sum_of(places: Iterable[Place]) -> Resources:
    """All that `places` hold together."""
    cpus, memory_bytes, gpus = 0.0, 0, 0.0
    for one in places:
        cpus += one.cpus
        memory_bytes += one.memory_bytes
        gpus += one.gpu_share * len(one.gpus)
    return Resources(cpus, memory_bytes, gpus)


def _as_seen_by(organization: str, taken_places: Iterable[Place]) -> list[Place]:
    """Without the names of what is others'."""
    return [
        place if place.key.organization == organization else replace(place, key=_OTHERS)
        for place in taken_places
    ]


def _choose_gpus(
    wanted: float, taken_places: Sequence[Place], gpus: Sequence[int]
) -> tuple[int, ...] | None:
    """Empty GPUs for a whole number, the fullest that still has room for a share; None = no."""
    if wanted <= 0:
        return ()
    load = dict.fromkeys(gpus, 0.0)
    for other in taken_places:
        for gpu in other.gpus:
            load[gpu] = load.get(gpu, 0.0) + other.gpu_share
    if wanted < 1:
        roomy = [gpu for gpu in gpus if load[gpu] + wanted <= 1 + _DUST]
        return (max(roomy, key=lambda gpu: load[gpu]),) if roomy else None
    empty = tuple(gpu for gpu in gpus if load[gpu] == 0)
    return empty[: int(wanted)] if len(empty) >= wanted else None


def _gpu_shortage(wanted: float, taken_places: Sequence[Place], capacity: Capacity) -> str:
    total = len(capacity.gpus)
    what = f"{wanted:g} GPU" + ("s" if wanted > 1 else "")
    if wanted > total:
        return f"{what}: this machine has {total}"
    touched = len({gpu for other in taken_places for gpu in other.gpus})
    holders = _names(other for other in taken_places if other.gpus)
    return f"{what}: {touched} of {total} are taken by {holders}"


def _cpu_shortage(wanted: float, taken_places: Sequence[Place], capacity: Capacity) -> list[str]:
    if wanted > capacity.cpus + _DUST:
        return [f"{wanted:.1f} CPUs: this machine has {capacity.cpus:.1f}"]
    promised = f"{capacity.promised_cpus:.1f}"
    if capacity.cpu_overcommit != 1:
        promised += f" ({capacity.cpu_overcommit:g} times this machine's, cpu_overcommit)"
    return _shortage(
        f"{wanted:.1f} CPUs",
        wanted,
        capacity.promised_cpus,
        promised,
        taken_places,
        lambda place: place.cpus,
    )


def _memory_shortage(wanted: int, taken_places: Sequence[Place], capacity: Capacity) -> list[str]:
    what, total = f"{wanted / GIB:.1f} GiB of memory", f"{capacity.memory_bytes / GIB:.1f}"
    if wanted > capacity.memory_bytes:
        return [f"{what}: this machine has {total}{capacity.arena_note}"]
    most = capacity.memory_bytes
    return _shortage(what, wanted, most, total, taken_places, lambda place: place.memory_bytes, GIB)


def _shortage(
    what: str,
    wanted: float,
    total: float,
    shown: str,
    taken_places: Sequence[Place],
    amount: Callable[[Place], float],
    unit: float = 1,
) -> list[str]:
    taken = sum(map(amount, taken_places))
    if wanted <= 0 or taken + wanted <= total + _DUST:
        return []
    holders = _names(other for other in taken_places if amount(other) > 0)
    return [f"{what}: {taken / unit:.1f} of {shown} are taken by {holders}"]


def _names(places: Iterable[Place]) -> str:
    counts = Counter(one.key for one in places)
    named = {"other organizations" if key == _OTHERS else key: n for key, n in counts.items()}
    return ", ".join(f"{key} ({n} replica{'s' if n > 1 else ''})" for key, n in named.items())
