"""`hotplate status`: the deployments of a platform, or one with all that it has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape

from hotplate.platform import notices
from hotplate.platform.commands.pages.printing import in_columns, say

BAR_CELLS = 40
SHOWN_DECISIONS = 10
WIDEST = (24, 18, 8, 0)
"""Cells of a deployment's name, status, replicas and URL in one line."""


def show_all(console: Console, deployments: Sequence[dict[str, Any]]) -> None:
    """Two lines each: name, status, replicas and URL, and below them the reason."""
    if not deployments:
        console.print("no deployments; make one with: bentoml deploy .")
        return
    rows = [("NAME", "STATUS", "REPLICAS", "URL")]
    for item in deployments:
        replicas = item["live"]["replicas"]
        count = f"{sum(r['state'] == 'ready' for r in replicas)}/{len(replicas)}"
        rows.append((item["name"], item["status"], count, item["url"]))
    head, *lines = in_columns(rows, WIDEST)
    say(console, f"[bold]{head}[/]")
    for line, item in zip(lines, deployments, strict=True):
        say(console, escape(line), hang="  ")
        if item["reason"]:
            say(console, escape(item["reason"]), "    ")


def show_deployment(
    console: Console, item: dict[str, Any], cold_starts: Sequence[dict[str, Any]] = ()
) -> None:
    """One deployment: status, services with the last decision, replicas with their cold starts."""
    name = f"[bold]{escape(item['name'])}[/]"
    say(console, f"{name}  {item['status']}  {item['url']}  ({item['bento']})", hang="  ")
    if item["reason"]:
        say(console, escape(item["reason"]), "  ")
    for line in item["revisions"][0]["log_tail"]:
        say(console, f"[dim]{escape(line)}[/]", "  | ", "  |   ")
    for service in item["live"]["services"]:
        _show_service(console, item["name"], service)
    if item["tasks"]:
        counted = (f"{count} {status}" for status, count in sorted(item["tasks"].items()))
        say(console, f"tasks kept: {', '.join(counted)}", hang="  ")
    for replica in item["live"]["replicas"]:
        _show_replica(console, replica)
    if cold_starts and not item["live"]["replicas"]:
        console.print()
        say(console, f"last cold start: {escape(cold_starts[0]['replica'])}", hang="  ")
        _show_phases(console, cold_starts[0]["phases"])
    if item["decisions"]:
        console.print("\n[bold]decisions[/]")
    for decision in reversed(item["decisions"][:SHOWN_DECISIONS]):
        change = f"{decision['replicas']} → {decision['desired']}"
        say(console, escape(decision["reason"]), f"  {_time(decision['at'])}  {change}  ")


def _show_service(console: Console, deployment: str, service: dict[str, Any]) -> None:
    console.print()
    say(
        console,
        f"[bold]{escape(service['service'])}[/] (revision {service['revision']}): "
        f"{service['min_replicas']} to {service['max_replicas']} replicas; "
        f"{service['in_flight']} in flight, {service['queued']} queued",
        hang="  ",
    )
    say(console, escape(service["slots"]), "  ")
    if service["reason"]:
        say(console, escape(service["reason"]), "  ")
    if service["unserved"]:
        say(console, f"callers cannot reach it: {escape(service['unserved'])}", "  ")
    if service["refused"]:
        sentence = notices.refused(deployment, service["refused"])
        say(console, f"refused since their gateway started: {escape(sentence)}", "  ")


def _show_replica(console: Console, replica: dict[str, Any]) -> None:
    restarts = f"  ({replica['restarts']} restarts)" if replica["restarts"] else ""
    size_bytes = replica.get("memory_bytes", 0)  # an older platform has none
    memory = f", {decimal(size_bytes)} of memory" if size_bytes else ""
    console.print()
    line = f"[bold]{escape(replica['id'])}[/]  {replica['state']}{restarts}{memory}"
    say(console, line, hang="  ")
    if replica["reason"]:
        say(console, escape(replica["reason"]), "  ")
    if replica["out"]:
        sentence = notices.out(replica["out"], moment(replica["out_since"]))
        say(console, escape(sentence), "  ")
    if replica["abandoned_handlers"]:
        say(console, notices.abandoned(replica["abandoned_handlers"]), "  ")
    _show_phases(console, replica["phases"])


def _show_phases(console: Console, phases: Sequence[dict[str, Any]]) -> None:
    for line in phase_chart(phases):
        say(console, line, "  ")


def phase_chart(phases: Sequence[dict[str, Any]], cells: int = BAR_CELLS) -> list[str]:
    """A bar per phase on one time axis, its seconds, and for how many of them the start waited.

    Phases may overlap, so only the latter add up to the last line.
    """
    ended = [phase for phase in phases if phase["end"] is not None]
    if not ended:
        return []
    begin = min(phase["start"] for phase in ended)
    whole_s = max(phase["end"] for phase in ended) - begin
    lines = [f"{'':12}{'':{cells + 1}} {'lasted':>9} {'waited':>9}"]
    for name in dict.fromkeys(phase["name"] for phase in ended):
        spans = [phase for phase in ended if phase["name"] == name]
        bar = [" "] * cells
        for span in spans:
            first = min(cells - 1, round((span["start"] - begin) / (whole_s or 1) * cells))
            last = max(first + 1, round((span["end"] - begin) / (whole_s or 1) * cells))
            bar[first:last] = "█" * (last - first)
        lasted_s = sum(span["end"] - span["start"] for span in spans)
        waited_s = sum(span.get("share_s", 0.0) for span in spans)
        lines.append(f"{name:12}{''.join(bar)}  {lasted_s:7.2f} s {waited_s:7.2f} s")
    lines.append(f"{'in all':12}{'':{cells + 1}} {'':9} {whole_s:7.2f} s")
    return lines


def _time(text: str) -> str:
    return datetime.fromisoformat(text).astimezone().strftime("%H:%M:%S")


def moment(text: str) -> str:
    """A time in ISO 8601 as the clock here shows it, with the day where it is not today."""
    at = datetime.fromisoformat(text).astimezone()
    today = at.date() == datetime.now(UTC).astimezone().date()
    return at.strftime("%H:%M:%S" if today else "%m-%d %H:%M:%S")
