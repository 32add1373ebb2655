"""The files in which observers write what they see, one line each, at once or soon after.

    client     sent NUMBER AT / repeated NUMBER AT / ended NUMBER AT OUTCOME [NUMBER OF THE ANSWER'S
               REQUEST]
    replica    up SLOTS / begun NUMBER AT / over NUMBER AT (`replica_file.py`)
    gateway    its access log with its loop's time (`programs/recorded_gateway.py`); requests have
               their number as `X-Request-Id`

A replica is killed at any moment, so it writes each line at once, and an unfinished last line is
left out. Each `up` is another life.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self, cast

from loadtests.history.observations import Ended, Outcome, Passed, Repeated, Run, Sent
from loadtests.history.operation import Operation

_KEPT_BYTES = 1 << 16


class ClientFile:
    """What a client saw; it is written when the block ends, too, so the client must not be
    killed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=_KEPT_BYTES)

    def sent(self, number: int, at: float) -> None:
        self._file.write(f"sent {number} {at:.6f}\n")

    def repeated(self, number: int, at: float) -> None:
        self._file.write(f"repeated {number} {at:.6f}\n")

    def ended(self, number: int, at: float, outcome: Outcome, answer_of: int | None = None) -> None:
        of = "" if answer_of is None else f" {answer_of}"
        self._file.write(f"ended {number} {at:.6f} {outcome}{of}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def client_observations(path: Path) -> tuple[list[Sent], list[Repeated], list[Ended]]:
    sent: list[Sent] = []
    repeated: list[Repeated] = []
    ended: list[Ended] = []
    with path.open() as file:
        for line in file:
            words = line.split()
            number, at = int(words[1]), float(words[2])
            if words[0] == "sent":
                operation = Operation(number)
                sent.append(Sent(number, at, operation.may_run_twice, operation.order))
            elif words[0] == "repeated":
                repeated.append(Repeated(number, at))
            else:
                answer_of = int(words[4]) if len(words) > 4 else None
                ended.append(Ended(number, at, cast("Outcome", words[3]), answer_of))
    return sent, repeated, ended


def runs(path: Path, replica: str) -> tuple[list[Run], dict[str, int]]:
    """The runs of all its lives, and the slots of each life by its name."""
    found: list[Run] = []
    slots: dict[str, int] = {}
    begun: dict[int, list[float]] = {}
    life = replica
    for words in _whole_lines(path):
        match words:
            case ["up", count]:
                found += _cut(life, begun)
                life = f"{replica}, life {len(slots) + 1}"
                slots[life] = int(count)
            case ["begun", number, at]:
                begun.setdefault(int(number), []).append(float(at))
            case ["over", number, at]:
                began_at = begun[int(number)].pop(0)
                found.append(Run(int(number), life, began_at, float(at)))
    return found + _cut(life, begun), slots


def passed(path: Path, gateway: str, replicas: Iterable[str]) -> list[Passed]:
    """The lines about requests that one of these replicas had; not those that went to another
    gateway."""
    own = set(replicas)
    found = []
    for words in _whole_lines(path):
        if len(words) == 11 and words[10] in own and words[3].isdigit() and words[6] == "200":
            noted_at, waited_s, total_s = map(float, (words[0], words[8], words[9]))
            found.append(Passed(int(words[3]), gateway, noted_at, waited_s, total_s))
    return found


def _whole_lines(path: Path) -> Iterator[list[str]]:
    if not path.exists():
        return
    with path.open() as file:
        for line in file:
            if line.endswith("\n") and not line.isspace():
                yield line.split()


def _cut(life: str, begun: dict[int, list[float]]) -> list[Run]:
    """The runs that this life has not ended."""
    cut = [Run(number, life, at, None) for number, times in begun.items() for at in times]
    begun.clear()
    return cut
