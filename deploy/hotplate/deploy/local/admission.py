"""Which replicas of one machine may start: what there is, what is taken, what one more will take.

What a replica asks for of the memory is promised to it, and is its limit. One that asks for none is
counted with what others of its service took when they were new (`footprints`) until it is measured,
and then with what is its own (`memory_watch`). `placement` decides.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hotplate.deploy.engine import Node, ReplicaState
from hotplate.deploy.local.footprints import Footprint, Footprints, MemoryReading
from hotplate.deploy.local.machine import Machine
from hotplate.deploy.local.memory_watch import Measured
from hotplate.deploy.local.placement import Applicant, Expected, Place, place, sum_of
from hotplate.deploy.local.records import Records
from hotplate.deploy.local.replica import LocalReplica
from hotplate.deploy.local.standby.pools import StandbyPools
from hotplate.deploy.workload import Resources, WorkloadKey

MOST_EXPECTED = 0.5
"""Of the machine's memory, what a replica that asks for none is expected to take, at most: what one
revision has taken in error must not keep the next from starting for ever."""

log = logging.getLogger(__name__)

Replicas = Mapping[str, LocalReplica]


class Admission:
    """Of one engine."""

    def __init__(
        self, machine: Machine, records: Records, replicas: Replicas, standbys: StandbyPools
    ) -> None:
        """`replicas` are all that there are, at any time."""
        self._machine = machine
        self._records = records
        self._replicas = replicas
        self._standbys = standbys
        self._footprints = _recalled(records.memory_file)
        self._saved = self._footprints.to_json()

    def admit(self, now: float) -> None:
        """Start the pending replicas that fit, tell the others why they wait."""
        pending = [
            each
            for each in self._replicas.values()
            if each.state is ReplicaState.PENDING and each.retry_at <= now
        ]
        if not pending:
            return
        outcome = place(
            [self._applicant(each, self._expected(each.workload.key)) for each in pending],
            self._places(),
            self._machine.capacity,
            self._standbys.memory_bytes,
            measured=not any(map(_is_unmeasured, self._replicas.values())),
        )
        for replica, found in outcome.placed.items():
            self._replicas[replica].start(found)
        for replica, reason in outcome.waiting.items():
            self._replicas[replica].wait_for_place(reason)

    def may_start_alone(self, replica: str) -> str:
        """Why one that has a place cannot start unless it is forked; "" = it can, and is counted
        so."""
        one = self._replicas[replica]
        alone = replace(self._expected(one.workload.key), forked_bytes=0)
        if one.place is None or one.place.memory_bytes >= alone.alone_bytes:
            return ""
        if one.workload.resources.memory_bytes:
            return ""
        others = [each for each in self._places() if each is not one.place]
        outcome = place([self._applicant(one, alone)], others, self._machine.capacity)
        if replica in outcome.waiting:
            return outcome.waiting[replica]
        one.place = outcome.placed[replica]
        return ""

    def make_room(self) -> None:
        """Warm processes have what replicas leave."""
        free_bytes = self._machine.capacity.memory_bytes - sum_of(self._places()).memory_bytes
        # One that is being prepared may still take the standby on its GPU.
        running = [r.place for r in self._replicas.values() if r.place and r.has_process]
        busy_gpus = {gpu for place in running for gpu in place.gpus}
        self._standbys.give_way(max(0, free_bytes), busy_gpus)

    def measured(self) -> Sequence[Measured]:
        """Whose memory is read: what starts is counted with what it will take."""
        attempts = (each.attempt for each in self._replicas.values() if each.has_process)
        ready = [attempt for attempt in attempts if attempt.ready_at is not None]
        return [*ready, *self._standbys.warm()]

    def note_memory(self) -> None:
        """It has been read."""
        readings: dict[WorkloadKey, list[MemoryReading]] = {}
        for replica in self._replicas.values():
            reading = replica.attempt.reading() if replica.has_process else None
            if reading is not None:
                if replica.place and not replica.workload.resources.memory_bytes:
                    own_bytes = reading.memory.own_bytes
                    replica.place = replace(replica.place, memory_bytes=own_bytes)
                readings.setdefault(replica.workload.key, []).append(reading)
        self._footprints.note(readings)
        if (known := self._footprints.to_json()) != self._saved:
            with suppress(OSError):  # a full disk: it is learnt again
                self._records.save_memory({"services": known})
                self._saved = known

    def footprint_bytes(self, key: WorkloadKey) -> int:
        """As the engine's."""
        footprint = self._footprint(key)
        return footprint.own_bytes if footprint else 0

    def node(self) -> Node:
        """What there is, and what of it is taken."""
        total = self._machine.capacity
        in_all = Resources(total.promised_cpus, total.memory_bytes, len(total.gpus))
        taken = sum_of(self._places())
        memory_bytes = taken.memory_bytes + self._standbys.memory_bytes
        gpus = ", ".join(sorted({gpu.name for gpu in self._machine.gpus}))
        labels = {"gpu": gpus} if gpus else {}
        return Node(in_all, replace(taken, memory_bytes=memory_bytes), total.cpus, labels)

    def _places(self) -> list[Place]:
        return [each.place for each in self._replicas.values() if each.place is not None]

    def _applicant(self, one: LocalReplica, expected: Expected) -> Applicant:
        return Applicant(one.id, one.workload.key, one.workload.resources, one.created_at, expected)

    def _footprint(self, key: WorkloadKey) -> Footprint | None:
        footprint = self._footprints.of(key)
        if footprint is None:
            return None
        most_bytes = int(MOST_EXPECTED * self._machine.capacity.memory_bytes)
        return replace(
            footprint,
            own_bytes=min(footprint.own_bytes, most_bytes),
            alone_bytes=min(footprint.alone_bytes, most_bytes),
        )

    def _expected(self, key: WorkloadKey) -> Expected:
        footprint = self._footprint(key)
        if footprint is None:
            return Expected()
        forked = self._standbys.has_template(footprint.warm)
        return Expected(footprint.alone_bytes, footprint.own_bytes if forked else 0)


def _recalled(file: Path) -> Footprints:
    """What the last engine knew; nothing where that cannot be read."""
    try:
        return Footprints(json.loads(file.read_text())["services"])
    except FileNotFoundError:
        return Footprints()
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning(
            "what replicas took of the memory cannot be read and is learnt again: %s", error
        )
        return Footprints()


def _is_unmeasured(one: LocalReplica) -> bool:
    """Whether it is soon to be known what it takes."""
    return one.starts_lately or (one.serves and one.attempt.memory is None)
