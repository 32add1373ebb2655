"""`make gpu`: all checks of a machine with a GPU, as one table, in at most 8 minutes.

It runs every check of `gpu/checks.py`, which are the tests marked `gpu`, and `bench.py gpu`, each
in a process of its own with a time limit. It needs this checkout and PyTorch, and no network; what
a check needs beyond that and does not find is a row that says so.

Exit status: 0 = whatever could run holds; 1 = something does not; 2 = wrong flags; 3 = nothing
could run: there is no PyTorch, or no GPU that it can use.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

# Run as a file, as `python -m loadtests.gpu_day` would be: imports start at the root.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from loadtests.gpu.checks import CHECKS, Check
from loadtests.gpu.finding import Finding
from loadtests.harness.child_process import (
    END_S,
    BenchmarkFailed,
    Child,
    checkout_environ,
    end_children,
    running,
)

BUDGET_S = 470.0
"""For all checks, so that the table is complete within 8 minutes."""
MACHINE_S = 120.0
"""The first import of PyTorch reads gigabytes from a disk."""
CELL_CHARS = 200
PR_SET_CHILD_SUBREAPER = 36
NO_TORCH, NO_GPU = "torch", "a GPU that PyTorch can use"
HOLDS, FAILS, MISSING, NOT_RUN = "holds", "FAILS", "missing", "not run"
MACHINE = """
import json, platform, torch
there = torch.cuda.is_available()
gpus = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())] if there else []
about = f"torch {torch.__version__}, CUDA {torch.version.cuda}, Python {platform.python_version()}"
print(json.dumps({"gpus": gpus, "about": about}), flush=True)
"""


@dataclass(frozen=True)
class Row:
    check: str
    figure: str
    verdict: str
    remark: str


def main() -> int:
    flags = _parser().parse_args()
    checks = [check for check in CHECKS if check.name in (flags.names or ALL)]
    # A process that a check has started and not stopped becomes our child when the check ends.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    rows: list[Row] = []
    try:
        asyncio.run(_run(checks, flags.budget, rows))
    except KeyboardInterrupt:
        rows.append(Row("stopped", "", NOT_RUN, "by Ctrl-C"))
    print("\n".join(_table(rows)))
    if flags.json is not None:
        flags.json.write_text(json.dumps([asdict(row) for row in rows]))
    return status_of(rows)


def status_of(rows: Iterable[Row]) -> int:
    """The exit status that says what the rows do."""
    verdicts = [row.verdict for row in rows]
    if FAILS in verdicts or NOT_RUN in verdicts:
        return 1
    return 0 if any(verdict in (HOLDS, "") for verdict in verdicts) else 3


async def _run(checks: Sequence[Check], budget_s: float, rows: list[Row]) -> None:
    """Adds each row when it is known, so that they can be shown however this ends."""
    ends_at = time.monotonic() + budget_s
    with tempfile.TemporaryDirectory(prefix="hotplate-gpu-") as name:
        folder = Path(name)
        machine, lacking = await _machine(folder)
        rows.append(machine)
        for number, check in enumerate(checks):
            own = folder / str(number)
            own.mkdir()
            left_s = ends_at - time.monotonic()
            print(f"{check.title} …", file=sys.stderr, flush=True)
            rows += await _rows(check, own, left_s, lacking)


async def _machine(folder: Path) -> tuple[Row, list[str]]:
    """A row about this machine, and what is missing here for all checks."""
    if find_spec("torch") is None:
        about = f"Python {sys.version.split()[0]}"
        return Row("this machine", about, MISSING, NO_TORCH), [NO_TORCH]
    command = [sys.executable, "-c", MACHINE]
    try:
        async with _child(command, folder / "machine.log") as child:
            found = await child.next_json(MACHINE_S)
    except BenchmarkFailed as error:
        return Row("this machine", "", FAILS, str(error)), [NO_GPU]
    if not found["gpus"]:
        return Row("this machine", found["about"], MISSING, NO_GPU), [NO_GPU]
    return Row("this machine", "; ".join(found["gpus"]), "", found["about"]), []


async def _rows(check: Check, folder: Path, left_s: float, lacking: Sequence[str]) -> list[Row]:
    """The findings of one check, and last what went wrong."""
    missing = list(dict.fromkeys([*lacking, *check.missing()]))
    if missing:
        return [Row(check.title, "", MISSING, ", ".join(missing))]
    if left_s <= 1:
        return [Row(check.title, "", NOT_RUN, "the time for all checks was over")]
    limit_s = min(check.limit_s, left_s)
    rows: list[Row] = []
    command = [sys.executable, "-m", "loadtests.gpu.check_process", check.name, str(folder)]
    try:
        async with asyncio.timeout(limit_s), _child(command, folder.with_suffix(".log")) as child:
            while "end" not in (line := await child.next_json(limit_s + 1)):
                rows.append(_row(Finding(**line)))
    except TimeoutError:
        return [*rows, Row(check.title, "", FAILS, f"it did not end in {limit_s:.0f} s")]
    except BenchmarkFailed as error:
        return [*rows, Row(check.title, "", FAILS, str(error))]
    if "missing" in line:
        return [*rows, Row(check.title, "", MISSING, line["missing"])]
    return [*rows, Row(check.title, "", FAILS, line["end"])] if line["end"] else rows


@asynccontextmanager
async def _child(command: Sequence[str], log: Path) -> AsyncIterator[Child]:
    """A process that runs until the block ends; nothing that it has started is left."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    environ = checkout_environ() | offline
    async with running(*command, log=log, environ=environ, piped=True, grace_s=1.0) as child:
        try:
            yield child
        finally:
            await child.stop(1.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await child.wait()
            await end_children()


def _row(finding: Finding) -> Row:
    verdict = {True: HOLDS, False: FAILS, None: ""}[finding.holds]
    return Row(finding.what, finding.figure, verdict, finding.remark)


def _table(rows: Sequence[Row]) -> list[str]:
    """The table in Markdown; the JSON has the texts that are cut here."""
    cells = [["check", "figure", "verdict", "missing, or a remark"]]
    cells += [[_cell(text) for text in asdict(row).values()] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    cells.insert(1, ["-" * width for width in [*widths, 3]])
    return ["| " + " | ".join([*map(str.ljust, row[:3], widths), row[3]]) + " |" for row in cells]


def _cell(text: str) -> str:
    return textwrap.shorten(text.replace("|", "/"), CELL_CHARS, placeholder=" …")


ALL = [check.name for check in CHECKS]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu_day", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", type=_known, metavar="CHECK", help=f"of {', '.join(ALL)}; else all"
    )
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for everything")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    return parser


def _known(name: str) -> str:
    """Raises ArgumentTypeError."""
    if name not in ALL:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(ALL)}")
    return name


if __name__ == "__main__":
    sys.exit(main())
