"""`make promises`: what the whole system promises, each proven by a command, as one table.

A promise is proven by rows of a benchmark, by a storm or by a module. With `--quick`, each is tried
in small: that shows that it can hold here, and 15 minutes are enough for all.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
LONGEST_S = 3 * 3600.0
Means = Literal["bench", "storm", "module", "later"]


@dataclass(frozen=True)
class Promise:
    """One row of the table."""

    number: str
    """Of the list of promises in `loadtests/README.md`."""
    what: str
    bound: str
    means: Means
    command: str = ""
    """What follows the program: the name of a benchmark, storm or module, and its flags. Of what
    comes later, why it does."""
    quick: str | None = None
    """The same in small; None = as it is."""
    figures: tuple[str, ...] = ()
    """Beginnings of the names of rows or figures that are shown; empty = all."""
    peer: str = ""


LONG = ""
"""In place of a quick command: there is none."""
KUBERNETES = "it comes with the second part of Kubernetes"
PROMISES = (
    Promise(
        "1",
        "what a gateway adds to 1,000 requests/s on a handler of 100 ms, p99",
        "≤ 5 ms",
        "bench",
        "gateway.overhead",
        None,
        ("the same: added", "the same: failed"),
        "HAProxy, same load",
    ),
    Promise(
        "1",
        "what a whole platform adds to BentoML's own handler of 100 ms, p95",
        "≤ 5 ms",
        "bench",
        "whole_platform.api",
        None,
        ("16 clients", "added", "not answered"),
        "its replica alone",
    ),
    Promise(
        "1",
        "what it adds to an ASGI application of 100 ms that 100 clients ask, p95",
        "≤ 5 ms",
        "bench",
        "whole_platform.asgi",
        None,
        ("100 clients", "added", "not answered"),
        "its replica alone",
    ),
    Promise(
        "2",
        "1,000 requests held while a service at zero starts, and answered",
        "0 errors",
        "storm",
        "burst",
        None,
        ("errors", "longest"),
    ),
    Promise(
        "3",
        "revisions roll under constant load, one of them at 100 requests/s",
        "0 errors",
        "storm",
        "rollouts",
        "rollouts --rollouts 3 --only rate",
        ("requests",),
    ),
    Promise(
        "3",
        "gateways are replaced under load: the listening socket is handed over",
        "0 errors",
        "storm",
        "gateways",
        "gateways --kills 1 --restarts 2",
        ("failed under restarts", "most running"),
    ),
    Promise(
        "4",
        "25 services wake from zero at once, p95",
        "≤ 2 s",
        "storm",
        "burst --services 25 --within 2",
        "burst --services 5 --within 2",
        ("errors", "p95"),
        "Knative: 25 in 2 s",
    ),
    Promise(
        "5",
        "kill -9 of anything for 10 minutes: nothing is lost, idempotent requests succeed",
        "all points hold, ≥ 99.9 %",
        "storm",
        "kills --minutes 10",
        "kills --points 4",
        ("points", "idempotent", "numbered requests"),
        "Ray Serve promises 99 %",
    ),
    Promise(
        "5",
        "replicas killed every 2 s: idempotent requests that succeed",
        "≥ 99.9 %",
        "bench",
        "gateway.kills",
        None,
        ("kill -9",),
        "HAProxy, same load",
    ),
    Promise(
        "6",
        "50 replicas drained with 1,000 requests in flight",
        "0 errors",
        "storm",
        "drains",
        "drains --drains 4 --in-flight 100",
        ("replicas", "requests", "errors"),
    ),
    Promise(
        "7",
        "the control plane dies at each moment of every operation",
        "all moments hold",
        "storm",
        "moments",
        "moments --operations create",
        ("moments",),
    ),
    Promise(
        "8, 9",
        "agents killed and starved, bits flipped, files cut: what is served stays right",
        "0 wrong bytes",
        "storm",
        "crashes",
        "crashes --kills 3",
        ("kills", "bits", "files", "chunks"),
    ),
    Promise(
        "10",
        "a kept task is acknowledged when it is on the disk",
        "a sync before each answer",
        "storm",
        "acknowledged",
        "acknowledged --tasks 20",
        ("tasks", "acknowledged without"),
    ),
    Promise(
        "11",
        "a recorded history: each request ends once, none runs twice, limits and order hold",
        "0 violations",
        "storm",
        "history",
        "history --operations 30000 --round 30000 --every 0.5",
        ("requests", "replicas killed", "gateways killed", "cut", "run again"),
    ),
    Promise(
        "12",
        "models of the queue beside random events",
        "0 violations",
        "storm",
        "queue",
        "queue --steps 4000",
        ("steps", "violations"),
    ),
    Promise(
        "12",
        "quotas, beside random events at each moment of waiting",
        "never exceeded",
        "storm",
        "quotas",
        "quotas --walks 5",
        ("walks", "exceeded"),
    ),
    Promise(
        "13",
        "a model to 8 nodes of which some lie, stall or die: bytes from the origin",
        "≤ 1.5 x size",
        "storm",
        "swarm",
        "swarm --nodes 16",
        ("8 nodes", "half", "three"),
    ),
    Promise(
        "14",
        "out of descriptors",
        "typed errors, recovery",
        "storm",
        "descriptors",
        "descriptors --seconds 4 --processes replica gateway",
    ),
    Promise(
        "14",
        "the clock jumps by an hour",
        "typed errors, recovery",
        "storm",
        "clocks",
        "clocks --seconds 4",
    ),
    Promise(
        "14",
        "each process meets its memory limit",
        "recovery",
        "storm",
        "memory_kills",
        "memory_kills --rounds 1",
    ),
    Promise(
        "14",
        "the store becomes read-only",
        "typed errors, recovery",
        "storm",
        "read_only",
        "read_only --seconds 5 --stores sqlite",
    ),
    Promise(
        "14",
        "links break, one direction too",
        "recovery",
        "storm",
        "partitions",
        "partitions --seconds 12 --parts gateway",
    ),
    Promise(
        "14",
        "the disk is slow",
        "typed errors, recovery",
        "storm",
        "slow_disk",
        "slow_disk --seconds 6 --slow 0.05",
    ),
    Promise(
        "15",
        "an hour of deploys, scale-ups, kills, uploads and failing clients",
        "all flat, 0 unexplained failures",
        "storm",
        "soak",
        "soak --minutes 2",
    ),
    Promise("16", "1,000 nodes, 1,000 deployments", "", "later", KUBERNETES),
    Promise("17", "upgrade and rollback of the platform under traffic", "", "later", KUBERNETES),
    Promise(
        "18",
        "one conformance suite for every engine: on this machine's (a cluster's is in "
        "`make test-kubernetes`)",
        "all pass",
        "module",
        "pytest -q -p no:xdist tests/deploy/local/test_conformance.py",
    ),
    Promise(
        "19",
        "small faults in the pure parts that tests notice",
        "≥ 85 % of each part",
        "module",
        "tests.mutation --least 85",
        "tests.mutation sharing --least 85 --share 0.1",
    ),
    Promise(
        "19",
        "lines and branches that the suite runs",
        "≥ 93 %",
        "module",
        "coverage report --fail-under 93",
        LONG,
    ),
)


@dataclass(frozen=True)
class Proof:
    """What came of one promise."""

    promise: Promise
    got: str
    holds: str
    """yes, NO, or empty where it was not tried."""
    lasted_s: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="promises", description=__doc__)
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="of the list; else all")
    parser.add_argument("--quick", action="store_true", help="each in small, 15 minutes in all")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too")
    flags = parser.parse_args()
    console = Console(highlight=False)
    proofs = []
    for promise in PROMISES:
        if flags.numbers and not set(promise.number.split(", ")) & set(flags.numbers):
            continue
        with console.status(f"{promise.number}: {promise.what}"):
            proofs.append(prove(promise, flags.quick))
        last = proofs[-1]
        console.print(f"{last.holds or '-':3} {promise.number:5} {promise.what}: {last.got}")
    console.print(table_of(proofs))
    if flags.markdown is not None:
        flags.markdown.write_text(markdown_of(proofs, flags.quick, datetime.now(UTC)))
    return 1 if any(proof.holds == "NO" for proof in proofs) else 0


def prove(promise: Promise, quick: bool) -> Proof:
    """Runs the promise's command, in small if `quick`."""
    if promise.means == "later":
        return Proof(promise, f"not yet: {promise.command}", "")
    if quick and promise.quick == LONG:
        return Proof(promise, "only in the long run: `make check` measures it", "")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hotplate-promise-") as folder:
        written = Path(folder, "result.json")
        try:
            ended = subprocess.run(
                _argv(promise, quick, written),
                cwd=ROOT,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=LONGEST_S,
            )
        except subprocess.TimeoutExpired:
            return Proof(promise, f"not over after {LONGEST_S / 3600:g} h", "NO", LONGEST_S)
        lasted_s = time.monotonic() - began
        if promise.means == "module":
            return Proof(promise, _last_line(ended.stdout), _yes(ended.returncode == 0), lasted_s)
        if not written.exists():
            return Proof(promise, _last_line(ended.stdout), "NO", lasted_s)
        result = json.loads(written.read_text())
    if promise.means == "bench":
        return _of_rows(promise, result, lasted_s)
    return _of_verdict(promise, result, lasted_s)


def command_of(promise: Promise, quick: bool = False) -> str:
    """What a person types for it, from the root of the repository."""
    arguments = promise.quick if quick and promise.quick is not None else promise.command
    match promise.means:
        case "bench":
            return f"loadtests/bench.py {arguments}" + (" --quick" if quick else "")
        case "storm":
            return f"loadtests/storm.py {arguments}"
        case "module":
            return f"-m {arguments}"
        case "later":
            return ""


def _argv(promise: Promise, quick: bool, written: Path) -> list[str]:
    argv = [sys.executable, *shlex.split(command_of(promise, quick))]
    return argv if promise.means == "module" else [*argv, "--json", str(written)]


def _of_rows(promise: Promise, result: dict[str, Any], lasted_s: float) -> Proof:
    rows = [row for each in result["benchmarks"].values() for row in each["rows"]]
    rows = [row for row in rows if _is_chosen(promise, row["figure"])]
    bounded = [row["holds"] for row in rows if row["holds"]]
    got = "; ".join(f"{row['figure']}: {_short(row.get('ours'))}" for row in rows)
    holds = _yes("NO" not in bounded) if bounded else "NO"
    return Proof(promise, got or "it could not be measured", holds, lasted_s)


def _of_verdict(promise: Promise, verdict: dict[str, Any], lasted_s: float) -> Proof:
    figures = {k: v for k, v in verdict["figures"].items() if _is_chosen(promise, k)}
    got = "; ".join(f"{name}: {_short(value)}" for name, value in figures.items())
    if broken := verdict["broken"]:
        got = f"{broken[0]}; {got}"
    return Proof(promise, got, _yes(not broken), lasted_s)


def _is_chosen(promise: Promise, name: str) -> bool:
    return not promise.figures or name.startswith(promise.figures)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _yes(holds: bool) -> str:
    return "yes" if holds else "NO"


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return re.sub(r"^=+ | =+$", "", lines[-1]) if lines else "it printed nothing"


def table_of(proofs: Sequence[Proof]) -> Table:
    table = Table(title="What is promised", box=None)
    for column in ("no.", "promise", "to reach", "holds", "got", "s"):
        table.add_column(column)
    for each in proofs:
        of = each.promise
        table.add_row(
            of.number, of.what, of.bound, each.holds or "-", each.got, f"{each.lasted_s:.0f}"
        )
    return table


def markdown_of(proofs: Sequence[Proof], quick: bool, at: datetime) -> str:
    """The table for a page, with the command and the date of each."""
    lines = ["| no. | promise | to reach | holds | got | peer | command | date |"]
    lines.append("|" + "---|" * 8)
    for each in proofs:
        of = each.promise
        command = f"`{command_of(of, quick)}`" if of.means != "later" else ""
        cells = (
            of.number,
            of.what,
            of.bound,
            each.holds,
            each.got,
            of.peer,
            command,
            f"{at:%d %B %Y}" if each.holds else "",
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
