"""`python loadtests/storm.py NAME`: one long trial of the whole platform, with its figures.

A storm is a module of `loadtests/storms`: its docstring's first line is the title, `add_flags`
adds its flags, and `run` does it. The exit status is 1 when a guarantee did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Protocol, cast

from rich.console import Console

# Run as a file, as `python -m loadtests.storm` would be: imports start at the root.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from loadtests.harness.report import json_of, table_of
from loadtests.harness.temporary_folder import temporary_folder
from loadtests.harness.verdict import Verdict

WIDTH = 160
"""Columns of a table that goes into a file."""
NAMES = sorted(path.stem for path in (Path(__file__).parent / "storms").glob("*.py"))


class Storm(Protocol):
    """A module of `loadtests/storms`."""

    __doc__: str

    def add_flags(self, parser: argparse.ArgumentParser) -> None: ...

    async def run(self, flags: argparse.Namespace, folder: Path) -> Verdict:
        """`folder` is empty and the storm's own; it is removed afterwards."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="storm", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    storms = {}
    for name in NAMES:
        storms[name] = cast("Storm", importlib.import_module(f"loadtests.storms.{name}"))
        command = commands.add_parser(name, help=title_of(storms[name]))
        storms[name].add_flags(command)
        command.add_argument("--json", type=Path, metavar="FILE", help="write the verdict there")
    flags = parser.parse_args()
    began = time.monotonic()
    with temporary_folder(flags.name) as folder:
        try:
            verdict = asyncio.run(storms[flags.name].run(flags, folder))
        except KeyboardInterrupt:
            return 130
    show(title_of(storms[flags.name]), verdict, time.monotonic() - began)
    if flags.json is not None:
        said = vars(verdict) | {"rows": json_of(verdict.rows)}
        flags.json.write_text(json.dumps(said, default=str))
    return 1 if verdict.broken else 0


def title_of(storm: Storm) -> str:
    return storm.__doc__.partition("\n")[0]


def show(title: str, verdict: Verdict, lasted_s: float) -> None:
    """Shows the table, the figures, and then the guarantees that did not hold."""
    console = Console(highlight=False, soft_wrap=True)
    if verdict.rows:
        wide = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
        wide.print(table_of(title, verdict.rows, lasted_s))
    else:
        console.print(f"[bold]{title}[/] ({lasted_s:.0f} s)")
    for name, value in verdict.figures.items():
        shown = f"{value:.3g}" if isinstance(value, float) else value
        console.print(f"  {name:40} {shown}")
    for sentence in verdict.broken:
        console.print(f"  [red]broken:[/] {sentence}", markup=True)
    console.print("held" if not verdict.broken else f"{len(verdict.broken)} did not hold")


if __name__ == "__main__":
    sys.exit(main())
