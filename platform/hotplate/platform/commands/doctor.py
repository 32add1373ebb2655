"""`hotplate doctor`: which walls this machine can put up, and whether its platform's files and
listeners are its own. Nothing of a platform that runs is touched."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from hotplate.deploy.errors import DeployError
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.isolation_check import CheckResult, CheckState, advice, inspect, kernel
from hotplate.platform.commands import flags
from hotplate.platform.commands.pages.printing import page_console, say
from hotplate.platform.errors import PlatformError
from hotplate.platform.processes.data_dir import DEFAULT, DataDir
from hotplate.platform.processes.ports import is_everywhere
from hotplate.platform.processes.role_state import role_states
from hotplate.platform.settings import PlatformSettings

_SECRETS = (
    *("admin-token", "endpoint-token", "cluster-token", "agent-token", "secret-keys"),
    *("hotplate.db", "hotplate.db-wal"),
)
"""Files of a data directory that nobody else may read."""
_COLOURS = {CheckState.OK: "green", CheckState.WEAK: "yellow", CheckState.MISSING: "red"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", default=DEFAULT, help=f"data directory of `up` ({DEFAULT})")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print what is found; 0 where every wall stands. Raises PlatformError."""
    data = DataDir.named(arguments.data)
    settings = flags.platform_settings(data.settings_file)
    findings = [*_walls(data, settings), *of_files(data, os.geteuid()), *of_settings(settings)]
    findings += of_roles(data)
    missing = any(finding.state is CheckState.MISSING for finding in findings)
    advised = advice() if missing else []
    if arguments.json:
        found = [asdict(finding) for finding in findings]
        report = {"ok": not missing, "kernel": kernel(), "user": os.geteuid(), "advice": advised}
        print(json.dumps(report | {"findings": found}))
    else:
        _show(findings, advised)
    return int(missing)


def _walls(data: DataDir, settings: PlatformSettings) -> list[CheckResult]:
    """Tried in the data directory; where there is none of this user's, among temporary files."""
    with ExitStack() as stack:
        folder = data.root
        if not (folder.is_dir() and folder.stat().st_uid == os.geteuid()):
            temporary = tempfile.TemporaryDirectory(prefix="hotplate-doctor-")
            folder = Path(stack.enter_context(temporary)).resolve()
        shown = {"reads": settings.replica_reads, "writes": settings.replica_writes}
        try:
            return asyncio.run(inspect(folder, Isolation([folder], **shown)))
        except (OSError, DeployError) as error:
            raise PlatformError(f"the isolation could not be checked: {error}") from error


def of_files(data: DataDir, user: int) -> list[CheckResult]:
    """Whether a data directory and its secrets are that user's alone."""
    if not data.root.is_dir():
        return [_read_as("data directory", CheckState.OK, f"there is none yet at {data.root}")]
    wrong = [
        problem
        for path, private in ((data.root, 0o700), *((data.root / n, 0o600) for n in _SECRETS))
        if (problem := _foreign(path, private, user))
    ]
    if wrong:
        return [_read_as("data directory", CheckState.MISSING, "; ".join(wrong))]
    return [_read_as("data directory", CheckState.OK, f"{data.root} is its user's alone")]


def _foreign(path: Path, private: int, user: int) -> str:
    """Why it is not the user's alone; "" where it is, or where there is none."""
    try:
        about = path.lstat()
    except OSError:
        return ""
    mode = stat.S_IMODE(about.st_mode)
    if about.st_uid != user:
        return f"{path} belongs to user {about.st_uid}: run this as the platform's user"
    if mode & ~private:
        return f"{path} has mode {mode:o}, so other users can open it: chmod {private:o} {path}"
    return ""


def of_settings(settings: PlatformSettings) -> list[CheckResult]:
    """Findings about what the settings let others do."""
    found = []
    if is_everywhere(settings.host) and not settings.tls_certificate:
        problem = "the platform listens on every address of this machine, in plain HTTP"
        found.append(
            _read_as("listeners", CheckState.WEAK, f"{problem}: put a proxy with TLS before it")
        )
    elif is_everywhere(settings.host):
        secured = "the platform listens on every address of this machine, for deployments with TLS"
        found.append(_read_as("listeners", CheckState.OK, secured))
    else:
        found.append(
            _read_as("listeners", CheckState.OK, f"the platform listens on {settings.host} only")
        )
    if settings.trust_organizations:
        problem = (
            "trust_organizations is true: organizations share files that any of them could change"
        )
        found.append(_read_as("organizations", CheckState.WEAK, problem))
    return found


def of_roles(data: DataDir) -> list[CheckResult]:
    """Findings about the modes that the platform's processes give files; none where none runs."""
    open_handed = []
    running = [state for state in role_states(data) if state.runs]
    for state in running:
        mask = _umask(state.pid)
        if mask is not None and mask & 0o077 != 0o077:
            open_handed.append(f"{state.name} ({mask:03o})")
    if open_handed:
        problem = (
            f"other users may open files that these make, by their umask: {', '.join(open_handed)}"
        )
        return [_read_as("umask", CheckState.MISSING, f"{problem}; it has to be 077")]
    return (
        [
            _read_as(
                "umask", CheckState.OK, "no other user can open the files that the platform makes"
            )
        ]
        if running
        else []
    )


def _umask(pid: int) -> int | None:
    """None for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), None)


def _read_as(name: str, state: CheckState, sentence: str) -> CheckResult:
    return CheckResult(name, state, sentence, tried=False)


def _show(findings: Sequence[CheckResult], advised: Sequence[str]) -> None:
    console = page_console()
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    console.print(f"Isolation of replicas, checked as {who} on {kernel()}:", soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("wall", no_wrap=True)
    for heading in ("", "found by", "what it means"):
        table.add_column(heading)
    for finding in findings:
        state = f"[{_COLOURS[finding.state]}]{finding.state}[/]"
        table.add_row(
            finding.name, state, "trying" if finding.tried else "reading", escape(finding.sentence)
        )
    console.print(table)
    for sentence in advised:
        say(console, escape(sentence))
    missing = [finding.name for finding in findings if finding.state is CheckState.MISSING]
    if missing:
        say(console, f"Missing: {', '.join(missing)}. SECURITY.md explains what that means.")
    else:
        say(console, "Replicas are isolated as this platform promises.")
