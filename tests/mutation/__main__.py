"""Mutation testing of the pure parts: `make mutation`, or `python -m tests.mutation PART… [flags]`.

No file is touched (`trials.py` says how), and several runs may go on beside one another. A mutant
that no test notices has survived; the score is the share of those that did not. A survivor is
either a missing test or a change that changes nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from typing import NamedTuple

from tests.mutation.mutants import mutants
from tests.mutation.trials import run
from tests.structure.source_tree import ROOT, named

GATEWAY, CONTROLLER = "serving/hotplate/serving/gateway", "platform/hotplate/platform/controller"


class Part(NamedTuple):
    folder: str
    tests: tuple[str, ...]
    """Whatever tests the part without starting a process."""


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


def tried(part: Part, share: float, seed: int) -> tuple[int, list[str]]:
    """How many mutants were tried, and what those were that no test noticed."""
    rng = random.Random(seed)
    chosen = {
        path: [one for one in mutants(path.read_text()) if rng.random() < share]
        for path in sorted((ROOT / part.folder).glob("*.py"))
    }
    trials = run(chosen, part.tests)
    unreached = trials.unreached
    left = []
    for path, survivors in trials.survivors.items():
        total = len(chosen[path])
        print(f"{named(path)}: {total - len(survivors)} of {total} noticed")
        left += [
            f"{named(path)}:{one.line}: {one.change}" + " (no test runs it)" * (one in unreached)
            for one in survivors
        ]
    return sum(len(found) for found in chosen.values()), left


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
    low = False
    for name in flags.parts or PARTS:
        part = PARTS[name]
        began = time.perf_counter()
        total, left = tried(part, flags.share, flags.seed)
        score = 100 * (1 - len(left) / total) if total else 100.0
        low = low or score < flags.least
        print(*left, sep="\n")
        print(
            f"{name}: {score:.1f} % of {total} mutants noticed, {time.perf_counter() - began:.0f} s"
        )
    sys.exit(low)


if __name__ == "__main__":
    main()
