"""Mutation testing of the pure parts: `make mutation`, or `python -m tests.mutation PART… [flags]`.

The part's tests run against each mutant in a forked process, which loads the changed module in
place of the file: no file is touched, and several runs may go on beside one another. A mutant
that no test notices has survived; the score is the share of those that did not. A survivor is
either a missing test or a change that changes nothing.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import pytest

from tests.mutation.mutants import Mutant, mutants
from tests.structure.source_tree import ROOT, module_of, named

PRELOADED = ("aiohttp", "hypothesis.strategies", "uvloop")
"""What tests import that is not ours: once, and not in every process."""
SLOWER = 5
"""A mutant that takes so many times as long as no fault at all runs for ever: it is noticed."""
LEAST_LIMIT_S = 10
GATEWAY, CONTROLLER = "serving/hotplate/serving/gateway", "platform/hotplate/platform/controller"


class Part(NamedTuple):
    folder: str
    tests: tuple[str, ...]
    """Whatever tests the part without starting a process, the shortest first."""


PARTS = {
    "rules": Part(
        "autoscaler/hotplate/autoscaler/rules",
        (
            "tests/autoscaler/rules",
            "tests/autoscaler/test_decider.py",
            "tests/autoscaler/test_scale_up.py",
            "tests/autoscaler/test_scale_down.py",
            "tests/autoscaler/test_stories.py",
        ),
    ),
    "sharing": Part("autoscaler/hotplate/autoscaler/sharing", ("tests/autoscaler/sharing",)),
    "queue": Part(f"{GATEWAY}/queue", ("tests/serving/gateway/queue",)),
    "http1": Part(f"{GATEWAY}/http1", ("tests/serving/gateway/http1",)),
    "swarm": Part("cache/hotplate/cache/swarm", ("tests/cache/swarm",)),
    "planning": Part(f"{CONTROLLER}/planning", ("tests/platform/controller/planning",)),
}


class _Loader(importlib.abc.Loader):
    def __init__(self, code: CodeType) -> None:
        self._code = code

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


class _Finder(importlib.abc.MetaPathFinder):
    """Gives one module the code of a mutant."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self._name, self._path, self._code = name, path, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _Loader(self._code)
        spec = importlib.machinery.ModuleSpec(fullname, loader, origin=str(self._path))
        spec.has_location = True
        return spec


def passes(tests: Sequence[str], limit_s: int, finder: _Finder | None = None) -> bool:
    """Whether all tests pass within the limit, in a process of their own."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return status == 0
    signal.alarm(limit_s)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    if finder is not None:
        sys.meta_path.insert(0, finder)
    flags = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    flags += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what was loaded before it
    os._exit(int(pytest.main([*flags, *tests])))


def first(path: Path, part: Part) -> list[str]:
    """The part's tests, those named after the file before the others: they notice most."""
    own = [
        str(found) for test in part.tests for found in (ROOT / test).glob(f"test_{path.stem}.py")
    ]
    return [*own, *part.tests]


def survivors(part: Part, limit_s: int, share: float, seed: int) -> tuple[int, list[str]]:
    """How many mutants were tried, and what those were that no test noticed."""
    rng = random.Random(seed)
    tried, left = 0, []
    for path in sorted((ROOT / part.folder).glob("*.py")):
        chosen = [one for one in mutants(path.read_text()) if rng.random() < share]
        alive = [one for one in chosen if _survives(one, path, part, limit_s)]
        tried += len(chosen)
        left += [f"{named(path)}:{one.line}: {one.change}" for one in alive]
        print(f"{named(path)}: {len(chosen) - len(alive)} of {len(chosen)} noticed", flush=True)
    return tried, left


def _survives(mutant: Mutant, path: Path, part: Part, limit_s: int) -> bool:
    code = compile(mutant.module, str(path), "exec")
    return passes(first(path, part), limit_s, _Finder(module_of(path), path, code))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all, if none is named")
    parser.add_argument("--share", type=float, default=1.0, help="of all mutants, at random")
    parser.add_argument("--seed", type=int, default=1, help="the same one chooses the same mutants")
    parser.add_argument(
        "--least", type=float, default=0.0, help="fail below this score, in percent"
    )
    flags = parser.parse_args()
    os.environ["HOTPLATE_GATEWAY__COMPILED"] = "false"
    for name in PRELOADED:
        importlib.import_module(name)
    low = False
    for name in flags.parts or PARTS:
        part = PARTS[name]
        began = time.perf_counter()
        if not passes(part.tests, 600):
            sys.exit(f"{name}: its tests fail without any fault")
        limit_s = max(LEAST_LIMIT_S, round(SLOWER * (time.perf_counter() - began)))
        tried, left = survivors(part, limit_s, flags.share, flags.seed)
        score = 100 * (1 - len(left) / tried) if tried else 100.0
        low = low or score < flags.least
        print(*left, sep="\n")
        print(
            f"{name}: {score:.1f} % of {tried} mutants noticed, {time.perf_counter() - began:.0f} s"
        )
    sys.exit(low)


if __name__ == "__main__":
    main()
