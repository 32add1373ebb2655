"""The platform as a whole, for people: from its API, or from the data directory when it is down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from hotplate.deploy.process import logfile
from hotplate.deploy.quantities import GIB
from hotplate.platform.commands.pages.printing import say
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.role_state import SUPERVISOR, role_states

LOG_LINES = 5
_BELOW = " " * 17
"""Before what goes on below the second column."""


def show_platform(console: Console, page: Mapping[str, Any]) -> None:
    """Print the response of `/api/v1/hotplate/platform`."""
    console.print("\n[bold]platform[/]")
    for role in page["roles"]:
        say(console, role_line(role), "  ", _BELOW)
    for node in page["nodes"]:
        say(console, f"{escape(node['name']):14} {_taken(node)}", "  ", _BELOW)
    for disk in page["disks"]:
        free, total = disk["free_bytes"] / GIB, disk["total_bytes"] / GIB
        shown = f"{free:.1f} of {total:.1f} GiB free at {escape(disk['path'])}"
        say(console, f"{'disk':14} {shown}", "  ", _BELOW)
    say(console, f"{'walls':14} {_walls(page['walls'])}", "  ", _BELOW)
    for sentence in page["short"]:
        say(console, f"[red]{escape(sentence)}[/]", "  ")


def role_line(role: Mapping[str, Any]) -> str:
    """One process, or one pod of a cluster: since when and where it runs, and how the one before it
    ended."""
    since = datetime.fromtimestamp(role["since"], UTC).astimezone().strftime("%m-%d %H:%M:%S")
    line = f"{role['name']:14} "
    node = escape(role.get("node", ""))
    if role["runs"]:
        place = f"on {node}" if "node" in role else f"pid {role['pid']}"
        line += f"running since {since} ({place})"
    else:
        line += "[red]is not running[/]" + (f" on {node}" if node else "")
    if role["restarts"]:
        times = "once" if role["restarts"] == 1 else f"{role['restarts']} times"
        line += f", started again {times}; the one before it: {escape(role['last_end'])}"
    return line


def _walls(walls: Mapping[str, Any]) -> str:
    if walls["up"]:
        return "every replica is isolated"
    return (
        f"[red]incomplete ({escape(walls['why'])}): 'hotplate doctor' says what "
        "replicas can reach[/]"
    )


def _taken(node: Mapping[str, Any]) -> str:
    """CPUs that are promised more than once are told from those that there are."""
    taken, in_all, there = node["taken"], node["in_all"], node["cpus"]
    cpus = f"{there:.1f}"
    if there != in_all["cpus"]:
        cpus = f"{in_all['cpus'] / there:g} x {cpus}"
    gib = f"{taken['memory_bytes'] / GIB:.1f} of {in_all['memory_bytes'] / GIB:.1f} GiB"
    gpus = f"{taken['gpus']:g} of {in_all['gpus']:g} GPUs"
    return f"{taken['cpus']:.1f} of {cpus} CPUs, {gib} of memory and {gpus} taken"


def show_what_is_left(console: Console, data: DataDir) -> None:
    """Print which roles still run, the control plane's last words, and what to do."""
    states = role_states(data)
    if not states:
        return
    for state in states:
        say(console, role_line(state.as_json()), "  ", _BELOW)
    path = data.root / "logs" / "control-plane.log"
    for line in logfile.tail(path, LOG_LINES):
        say(console, f"[dim]{escape(line)}[/]", "  | ", "  |   ")
    say(console, escape(what_to_do([state.name for state in states if state.runs], data)))


def what_to_do(running: Sequence[str], data: DataDir) -> str:
    """The advice for a platform whose control plane does not answer."""
    if SUPERVISOR in running:
        return (
            "the control plane is being started again by 'hotplate up'; ready replicas go on "
            f"answering meanwhile (log: {data.root}/logs/control-plane.log)"
        )
    if running:
        return (
            "'hotplate up' has ended and some of its parts have not: run "
            f"'hotplate up --data {data.root}', which takes them over and interrupts no request"
        )
    return f"nothing of the platform runs: start it with 'hotplate up --data {data.root}'"
