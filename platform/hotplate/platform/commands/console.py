"""`hotplate status | logs | events | why`: what a running platform says, for people."""

from __future__ import annotations

import argparse
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from hotplate.deploy.process.printable import printable
from hotplate.platform.commands import secret_flags
from hotplate.platform.commands.deployment_status import moment, show_all, show_deployment
from hotplate.platform.commands.installation_status import show_platform, show_what_is_left
from hotplate.platform.commands.printing import page_console
from hotplate.platform.commands.why import moment_of, show_why
from hotplate.platform.errors import NotFound, PlatformError, Unreachable
from hotplate.platform.log_lines import fresh
from hotplate.platform.processes.data_dir import DataDir

DECISIONS = 1000
"""That `why` looks at: as many as are kept."""
TIMEOUT_S = 30
FOLLOW_S = 1.0
"""Between two questions of `--follow`."""

Shown = dict[str, list[str]]
"""The lines last shown, per replica, or of all events under ""."""


def answer(arguments: argparse.Namespace) -> int:
    """Ask the platform and print. Raises `Unreachable` or `NotFound`."""
    ask = Asker.of(arguments)
    status = arguments.question == "status"
    console = page_console() if status else Console(highlight=False, soft_wrap=True)
    answered = ANSWERS[arguments.question]
    before: Shown = {}
    while True:
        before = answered(console, ask, arguments, before)
        if not getattr(arguments, "follow", False):
            return 0
        threading.Event().wait(FOLLOW_S)


class Asker:
    """Calls below `/api/v1/hotplate`."""

    def __init__(self, endpoint: str, token: str) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._token = token

    @staticmethod
    def of(arguments: argparse.Namespace) -> Asker:
        """By `--endpoint` and its token, else by the data directory of an `up` on this machine."""
        named = arguments.token_file
        token = secret_flags.read(named) if named else arguments.token or ""
        if arguments.endpoint:
            return Asker(arguments.endpoint, token)
        data = DataDir.named(arguments.data)
        noted = data.noted("endpoint")
        if noted is None:
            raise Unreachable(
                f"no platform has run in {data.root}: start it with 'hotplate up', "
                "or name its --data, or --endpoint and --token-file"
            )
        return Asker(noted["url"], token or data.secret("admin-token"))

    def __call__(self, path: str) -> Any:
        return self._asked(path, None)

    def put(self, path: str, content: dict[str, Any]) -> Any:
        """PUTs a JSON object."""
        return self._asked(path, json.dumps(content).encode())

    def _asked(self, path: str, content: bytes | None) -> Any:
        url = f"{self._endpoint}/api/v1/hotplate{path}"
        headers = {"X-YATAI-API-TOKEN": self._token}
        method = "GET" if content is None else "PUT"
        request = urllib.request.Request(url, content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise _failure(error) from error
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise Unreachable(
                f"{self._endpoint} does not answer ({reason}): is 'hotplate up' running?"
            ) from error


def _failure(error: urllib.error.HTTPError) -> PlatformError:
    body = error.read().decode(errors="replace")
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = body.strip() or f"HTTP {error.code}"
    return NotFound(message) if error.code == 404 else Unreachable(message)


def _status(console: Console, ask: Asker, arguments: argparse.Namespace, before: Shown) -> Shown:
    if arguments.name:
        cold_starts = ask(f"/deployments/{arguments.name}/cold_starts?count=1")
        show_deployment(console, ask(f"/deployments/{arguments.name}"), cold_starts)
        return before
    try:
        show_all(console, ask("/deployments"))
        show_platform(console, ask("/platform"))
    except Unreachable:
        if not arguments.endpoint:
            show_what_is_left(console, DataDir.named(arguments.data))
        raise
    return before


def _events(console: Console, ask: Asker, arguments: argparse.Namespace, before: Shown) -> Shown:
    """Of one deployment; without a name of all, and of the platform itself."""
    where = f"/deployments/{arguments.name}" if arguments.name else ""
    try:
        found = ask(f"{where}/events?count={arguments.lines}")
    except Unreachable as error:
        if arguments.name or arguments.endpoint:
            raise
        found = platform_events(DataDir.named(arguments.data), arguments.lines)
        console.print(f"[red]{escape(str(error))}[/] What is noted of the platform itself:")
    lines = [event_line(event, named=bool(arguments.name)) for event in reversed(found)]
    _print_fresh(console, before.get("", []), lines)
    return {"": lines}


def platform_events(data: DataDir, count: int) -> list[dict[str, Any]]:
    """The platform's own events as its API has them, read from the data directory."""
    return [vars(event) | {"at": event.at.isoformat()} for event in data.events.events(count)]


def event_line(event: dict[str, Any], *, named: bool) -> str:
    """When, of what, which kind, and the sentence."""
    of = "" if named else f"{event['deployment'] or 'platform':16} "
    return f"{moment(event['at'])}  {of}{event['kind']:16} {escape(printable(event['message']))}"


def _print_fresh(console: Console, before: Sequence[str], lines: Sequence[str]) -> None:
    for line in fresh(before, lines):
        console.print(line)


def _logs(console: Console, ask: Asker, arguments: argparse.Namespace, before: Shown) -> Shown:
    query = urllib.parse.urlencode({"replica": arguments.replica, "lines": arguments.lines})
    logs: Shown = ask(f"/deployments/{arguments.name}/logs?{query}")
    if not logs and not before:
        console.print(f"deployment '{arguments.name}' has no replicas now")
    for replica, lines in logs.items():
        if replica not in before or fresh(before[replica], lines):
            console.print(f"[bold]{escape(printable(replica))}[/]")
        _print_fresh(
            console, before.get(replica, []), [f"  {escape(printable(line))}" for line in lines]
        )
    return logs


def _why(console: Console, ask: Asker, arguments: argparse.Namespace, before: Shown) -> Shown:
    if arguments.log:
        for entry in ask(f"/deployments/{arguments.name}/log"):
            print(json.dumps(entry))
        return before
    now = datetime.now(UTC).astimezone()
    at = moment_of(arguments.at, now) if arguments.at else now
    query = urllib.parse.urlencode({"until": at.isoformat(), "count": DECISIONS})
    show_why(console, arguments.name, ask(f"/deployments/{arguments.name}/decisions?{query}"), at)
    return before


ANSWERS = {"status": _status, "logs": _logs, "events": _events, "why": _why}
