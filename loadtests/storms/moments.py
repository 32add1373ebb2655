"""The control plane dies at every moment of every operation, and the next one puts it right.

This is the code of a test, which leaves out each third moment.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from loadtests.harness.verdict import Verdict
from tests.support.control_plane.crash_points import OPERATIONS, deaths


def add_flags(parser: argparse.ArgumentParser) -> None:
    names = [operation.name for operation in OPERATIONS]
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
    return verdict
