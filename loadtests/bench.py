"""`make bench`: every benchmark beside its peers, as a table on the terminal and as JSON.

A benchmark is a module of `loadtests/benchmarks`: its docstring's first line is the title, and
`measure(folder, quick)` gives the rows. Of a benchmark with `PARTS` one can be run: `gateway.cost`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from rich.console import Console

# Run as a file, as `python -m loadtests.bench` would be: imports start at the root.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.report import Row, json_of, machine, markdown_of, table_of
from loadtests.harness.temporary_folder import temporary_folder

FOLDER = Path(__file__).parent / "benchmarks"
WIDTH = 200
"""Of tables that go into a file."""
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


class Benchmark(Protocol):
    """A module of `loadtests/benchmarks`."""

    __doc__: str

    async def measure(self, folder: Path, quick: bool, *parts: str) -> Sequence[Row]:
        """The rows of the table, or of some of its `PARTS`. `folder` is empty and the benchmark's
        own; `quick` measures each once, and small.

        Raises BenchmarkFailed.
        """


def main() -> int:
    arguments = _parser().parse_args()
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    try:
        results, failures = asyncio.run(
            _run(console, arguments.names or NAMES, arguments.quick, arguments.markdown)
        )
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("stopped")
        return 130
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), "benchmarks": results}))
    return 1 if failures else 0


async def _run(
    console: Console, names: Sequence[str], quick: bool, markdown: Path | None
) -> tuple[dict[str, Any], int]:
    """The results by benchmark, and how many failed. Each table is shown when it is complete."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    console.print(", ".join(f"{key} {value}" for key, value in machine().items()))
    results: dict[str, Any] = {}
    for name in names:
        module, _, part = name.partition(".")
        benchmark = _benchmark(module)
        began = time.monotonic()
        title = benchmark.__doc__.partition("\n")[0]
        with (
            temporary_folder(name) as folder,
            console.status(f"{name}: {title}"),
        ):
            try:
                rows = await benchmark.measure(folder, quick, *([part] if part else []))
            except BenchmarkFailed as error:
                console.print(f"[red]{name} failed:[/] {error}", soft_wrap=True)
                continue
        console.print(table_of(f"{name}: {title}", rows, time.monotonic() - began))
        if markdown is not None:
            with markdown.open("a") as page:
                page.write(markdown_of(f"**{name}**: {title}", rows) + "\n")
        results[name] = {"title": title, "rows": json_of(rows)}
    return results, len(names) - len(results)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", type=_known, help=f"of {', '.join(NAMES)}; else all")
    parser.add_argument("--quick", action="store_true", help="measure each once, and small")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="add the tables there too")
    return parser


def _benchmark(name: str) -> Benchmark:
    return cast("Benchmark", importlib.import_module(f"loadtests.benchmarks.{name}"))


def _known(name: str) -> str:
    """A benchmark's name, or `benchmark.part`. Raises ArgumentTypeError."""
    benchmark, _, part = name.partition(".")
    if benchmark not in NAMES:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(NAMES)}")
    parts = getattr(_benchmark(benchmark), "PARTS", [])
    if part and part not in parts:
        raise argparse.ArgumentTypeError(f"{part!r} is none of {', '.join(parts) or 'no parts'}")
    return name


if __name__ == "__main__":
    sys.exit(main())
