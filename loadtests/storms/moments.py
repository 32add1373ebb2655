"""The control plane dies at every moment of every operation, and the next one puts it right.

A change of the key of secrets, a backup, a restore and migrations die at lines of them. This is
the code of tests, which leave out some moments.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from loadtests.harness.verdict import Verdict
from tests.support.control_plane.crash_points import OPERATIONS, deaths
from tests.support.control_plane.line_deaths import WORKS, line_deaths

EVERY = 50
"""Of the works that are killed at lines of them: each such line, beside those before which files
have changed."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    names = [*(operation.name for operation in OPERATIONS), *WORKS]
    parser.add_argument("--operations", nargs="+", choices=names, default=names, metavar="NAME")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    logging.disable()  # every death would log a traceback
    for operation in OPERATIONS:
        if operation.name not in flags.operations:
            continue
        place = folder / operation.name
        place.mkdir()
        try:
            verdict.figures[f"moments of death: {operation.name}"] = await deaths(place, operation)
        except AssertionError as error:
            verdict.broken.append(f"{operation.name}: {error}")
    for name in WORKS:
        if name in flags.operations:
            _kill_at_lines(name, folder, verdict)
    tried = sum(count for count in verdict.figures.values() if isinstance(count, int))
    verdict.figures["moments of death in all"] = tried
    verdict.expect(tried > 0, "nothing was tried: it never died")
    return verdict


def _kill_at_lines(name: str, folder: Path, verdict: Verdict) -> None:
    place = folder / name
    place.mkdir()
    try:
        _, died = line_deaths(name, place, sys.maxsize, EVERY)
        verdict.figures[f"moments of death: {name}"] = died
    except AssertionError as error:
        verdict.broken.append(str(error))
