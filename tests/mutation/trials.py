"""A part's tests against each of its mutants, as a pytest plugin that runs in place of the tests.

Tests are collected once. Each mutant is then put in place in a forked process, which runs those
tests that reach the changed line, the quickest first, up to the first that fails.
"""

from __future__ import annotations

import contextlib
import gc
import io
import math
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import coverage
import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.transplant import transplant
from tests.structure.source_tree import module_of

SLOWER = 5
"""A mutant that takes so many times as long as no fault at all runs for ever: it is noticed."""
LEAST_CPU_S, LEAST_S = 2, 60


class Reached(NamedTuple):
    """What the tests reach without any fault."""

    tests: dict[str, dict[int, set[str]]]
    """By file and line."""
    cost_s: dict[str, float]
    """CPU time by test."""
    lasted_s: float


class Trials:
    def __init__(self, chosen: dict[Path, list[Mutant]], reached: BinaryIO) -> None:
        self._chosen, self._reached = chosen, reached
        self.failed = False
        """A test fails without any fault."""
        self.survivors: dict[Path, list[Mutant]] = {path: [] for path in chosen}
        self.unreached: list[Mutant] = []
        """Those of the survivors that no test runs."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Once for all mutants; what pytest does by itself follows in the forked processes only."""
        gc.freeze()
        child = os.fork()
        if not child:
            _quiet()
            session.config.pluginmanager.register(Measuring(self._chosen, self._reached))
            return None
        self.failed = not _ended_well(child)
        if self.failed:
            return True
        self._reached.seek(0)
        reached: Reached = pickle.load(self._reached)
        items = {item.nodeid: item for item in session.items}
        for path, mutants in self._chosen.items():
            for mutant in mutants:
                reaching = _reaching(mutant, reached.tests[str(path)])
                if mutant.run is None and not reaching:  # nothing but classes of values
                    reaching = set(items)
                names = sorted(reaching, key=reached.cost_s.__getitem__)
                if not names:
                    self.unreached.append(mutant)
                    self.survivors[path].append(mutant)
                elif child := os.fork():
                    if _ended_well(child):
                        self.survivors[path].append(mutant)
                else:
                    _quiet()
                    _limit(sum(reached.cost_s[name] for name in names), reached.lasted_s)
                    code = compile(mutant.module, str(path), "exec")
                    transplant(code, sys.modules[module_of(path)])
                    session.items[:] = [items[name] for name in names]
                    return None
        return True


class Measuring:
    """Which lines each test reaches, and how long it takes."""

    def __init__(self, paths: Iterable[Path], file: BinaryIO) -> None:
        self._paths, self._file = [str(path) for path in paths], file
        self._cost_s: dict[str, float] = {}
        self._began = time.perf_counter()
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=self._paths)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(item.nodeid)
        began = time.process_time()
        try:
            return (yield)
        finally:
            self._cost_s[item.nodeid] = time.process_time() - began

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        tests: dict[str, dict[int, set[str]]] = {}
        for path in self._paths:
            lines = data.contexts_by_lineno(path)
            tests[path] = {line: {name for name in names if name} for line, names in lines.items()}
        lasted_s = time.perf_counter() - self._began
        pickle.dump(Reached(tests, self._cost_s, lasted_s), self._file)
        self._file.flush()


def _reaching(mutant: Mutant, tests: dict[int, set[str]]) -> set[str]:
    lines = tests if mutant.run is None else mutant.run
    return set().union(*(tests.get(line, ()) for line in lines))


def _ended_well(child: int) -> bool:
    _, status = os.waitpid(child, 0)
    return status == 0


def _limit(cost_s: float, lasted_s: float) -> None:
    most_s = LEAST_CPU_S + math.ceil(SLOWER * cost_s)
    resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s))
    signal.alarm(LEAST_S + math.ceil(SLOWER * lasted_s))


def _quiet() -> None:
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)


def run(chosen: dict[Path, list[Mutant]], tests: Sequence[str]) -> Trials:
    """Raises RuntimeError where the tests fail without any fault."""
    parent = os.getpid()
    flags = ["-x", "-q", "-s", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
    with tempfile.TemporaryFile() as reached, contextlib.redirect_stdout(io.StringIO()) as said:
        trials = Trials(chosen, reached)
        code = pytest.main([*flags, *tests], [trials])
        if os.getpid() != parent:
            os._exit(code)
    if trials.failed or code:
        raise RuntimeError(f"the tests fail without any fault: run them alone\n{said.getvalue()}")
    return trials
