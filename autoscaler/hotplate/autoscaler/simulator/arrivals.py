"""Requests to simulate: when each comes, for which deployment, and how long it takes.

A trace is CSV (gzip allowed) with the header `arrival_s,service_s,deployment,organization`, rows in
order of arrival. `foreign_traces.py` reads public traces as they are published.
"""

from __future__ import annotations

import csv
import gzip
import random
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import IO

from hotplate.autoscaler.errors import TraceInvalid
from hotplate.autoscaler.simulator import foreign_traces
from hotplate.autoscaler.simulator.request import Request

COLUMNS = ("arrival_s", "service_s", "deployment", "organization")
MOST_S = {"arrival_s": 1e10, "service_s": 1e7}
"""The largest values. Seconds since 1970 are far below the first. A request of several months would
take hours to simulate, since some rules decide every two seconds."""

MOST_REQUESTS = 10_000_000
"""A million requests take 0.3 GB to read; some of ServeGen's clients would send a billion."""
MOST_CHARACTERS = 1_000_000
"""The longest first line: a longer one is not a header, and the file may have no lines at all."""


@dataclass
class RequestTrace:
    """The requests of one deployment, in order; seconds."""

    organization: str
    arrival_s: list[float] = field(default_factory=list)
    service_s: list[float] = field(default_factory=list)


def read(paths: Iterable[Path], rng: random.Random) -> dict[str, RequestTrace]:
    """The requests of all files together, by deployment.

    A deployment's organization is that of its first request. `rng` draws the arrivals of traces
    that only have rates. Raises TraceInvalid, whose message names the file, the line and the
    mistake.
    """
    paths = list(paths)
    names = _names(paths)
    found = chain.from_iterable(_checked(path, names[path], rng) for path in paths)
    requests = list(islice(found, MOST_REQUESTS + 1))
    if len(requests) > MOST_REQUESTS:
        raise TraceInvalid(
            f"the trace has more than {MOST_REQUESTS} requests; give fewer files or a part of one"
        )
    requests.sort(key=lambda request: request.arrival_s)
    deployments: dict[str, RequestTrace] = {}
    for request in requests:
        arrivals = deployments.get(request.deployment)
        if arrivals is None:
            arrivals = deployments[request.deployment] = RequestTrace(request.organization)
        arrivals.arrival_s.append(request.arrival_s)
        arrivals.service_s.append(request.service_s)
    return deployments


def _names(paths: Iterable[Path]) -> dict[Path, str]:
    """The name of each foreign file's deployment: the file's name, or the whole path where two
    files have the same name."""
    stems = {path: path.name.partition(".")[0] for path in paths}
    counts = Counter(stems.values())
    return {path: stem if counts[stem] == 1 else str(path) for path, stem in stems.items()}


def _checked(path: Path, name: str, rng: random.Random) -> Iterator[Request]:
    """The file's requests, checked, in order of arrival; at least one."""
    before_s = 0.0
    request = None
    line = 1
    try:
        with _opened(path) as file:
            for line, request in _rows(path, name, file, rng):
                for name, most_s in MOST_S.items():
                    value = getattr(request, name)
                    if not 0 <= value <= most_s:
                        raise TraceInvalid(
                            f"{path}, line {line}: {name} is {value}; it must be a number of "
                            f"seconds from 0 to {most_s:.0f}"
                        )
                if request.arrival_s < before_s:
                    raise TraceInvalid(
                        f"{path}, line {line}: arrival_s {request.arrival_s} is before "
                        f"{before_s} of the row above; sort the rows by arrival_s"
                    )
                if not request.deployment:
                    raise TraceInvalid(f"{path}, line {line}: deployment is empty; name it")
                before_s = request.arrival_s
                yield request
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise TraceInvalid(f"{path} cannot be read ({error}); give a CSV file") from error
    except UnicodeDecodeError as error:
        raise TraceInvalid(f"{path}, after line {line}: not UTF-8 ({error.reason})") from error
    if request is None:
        raise TraceInvalid(f"{path} has no requests; give at least one row below the header")


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """The text of a file or pipe, unpacked."""
    with path.open("rb") as file:
        packed = file.peek(2).startswith(b"\x1f\x8b")
        with TextIOWrapper(
            gzip.open(file) if packed else file, encoding="utf-8-sig", newline=""
        ) as text:
            yield text


def _rows(
    path: Path, name: str, file: IO[str], rng: random.Random
) -> Iterator[tuple[int, Request]]:
    """Line number and request of each row, by the format that the first line shows."""
    first = file.readline(MOST_CHARACTERS)
    if "\0" in first:
        raise TraceInvalid(
            f"{path} is not a text file; unpack it if it is an archive, and give its files"
        )
    read_line = foreign_traces.reader(first, name, rng)
    if read_line is not None:
        yield from _foreign(path, chain([first], file), read_line)
        return
    header = [name.strip() for name in next(csv.reader([first]), [])]
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise TraceInvalid(
            f"{path}: column {missing[0]} is missing; the header must be {','.join(COLUMNS)}"
            if first.strip()
            else f"{path} is empty; its first line must be {','.join(COLUMNS)}"
        )
    if twice := [name for name in COLUMNS if header.count(name) > 1]:
        raise TraceInvalid(f"{path}: column {twice[0]} appears twice; remove one of them")
    places = [header.index(name) for name in COLUMNS]
    rows = csv.reader(file)
    for row in rows:
        if row:
            number = rows.line_num + 1
            yield number, _request(path, number, row, places)


def _request(path: Path, line: int, row: list[str], places: list[int]) -> Request:
    arrival, service, deployment, organization = places
    try:
        return Request(float(row[arrival]), float(row[service]), row[deployment], row[organization])
    except (ValueError, IndexError):
        raise TraceInvalid(
            f"{path}, line {line}: {','.join(row)!r} is not a row of {','.join(COLUMNS)}, with "
            "seconds in the first two"
        ) from None


def _foreign(
    path: Path, lines: Iterable[str], read_line: foreign_traces.Reader
) -> Iterator[tuple[int, Request]]:
    for number, line in enumerate(lines, start=1):
        try:
            for request in read_line(line):
                yield number, request
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            raise TraceInvalid(f"{path}, line {number}: {error}") from error
