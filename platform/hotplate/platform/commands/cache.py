"""`hotplate cache pull | ls | verify | rm | warm`: what a person asks of a running agent."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from hotplate.cache import own_token
from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError
from hotplate.platform.commands import flags, secret_flags
from hotplate.platform.errors import BadSetting, PlatformError

if TYPE_CHECKING:
    Answer = Callable[[AgentClient, argparse.Namespace, Console], Awaitable[int]]

PATIENCE_S = 5.0
"""How long an agent that does not answer is asked again: one that died may be starting."""

_LOOK_S = 0.2
"""Between two looks at how far a pull is."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        required=True, metavar="ACTION", parser_class=argparse.ArgumentParser
    )
    for name, named, text in (
        ("pull", "URL", "fetch all files of a URL to the node"),
        ("ls", "", "list what the node has"),
        ("verify", "", "read all files again; drop and list damaged ones"),
        ("rm", "NAME", "drop a URL, a tree or a blob"),
        ("warm", "NAME", "load a URL or a tree into memory"),
    ):
        action = actions.add_parser(name, help=text)
        if named:
            action.add_argument("name", metavar=named, help="URL, path or digest")
        action.add_argument("--agent", help="HOST:PORT of the agent (HOTPLATE_AGENT)")
        action.add_argument(
            "--token-file",
            help="file with its token (HOTPLATE_AGENT_TOKEN_FILE; your own agent's is found)",
        )
        action.add_argument("--json", action="store_true", help="print one line of JSON")
        action.set_defaults(action=name)


def run(arguments: argparse.Namespace) -> int:
    """Ask the agent and print; the exit status. Raises PlatformError with one sentence."""
    agent = arguments.agent or os.environ.get("HOTPLATE_AGENT", "")
    if not agent:
        raise BadSetting("--agent HOST:PORT is missing: write the agent's address")
    if "://" not in agent and not flags.is_address(agent):
        raise BadSetting(
            f"--agent {agent} is not an address: write HOST:PORT, for instance 127.0.0.1:7070"
        )
    file = arguments.token_file or os.environ.get("HOTPLATE_AGENT_TOKEN_FILE", "")
    token = secret_flags.read(file) if file else own_token.find(agent.rpartition("/")[2])
    try:
        return asyncio.run(_ask(arguments, agent, token))
    except CacheError as error:
        raise PlatformError(" ".join(str(error).split())) from error


async def _ask(arguments: argparse.Namespace, agent: str, token: str) -> int:
    url = agent if "://" in agent else f"http://{agent}"
    client = AgentClient(url, token, patience_s=PATIENCE_S)
    answers: Mapping[str, Answer] = {
        "pull": _pull,
        "ls": _ls,
        "verify": _verify,
        "rm": _rm,
        "warm": _warm,
    }
    try:
        console = Console(highlight=False, soft_wrap=True)
        return await answers[arguments.action](client, arguments, console)
    finally:
        await client.close()


async def _pull(client: AgentClient, arguments: argparse.Namespace, console: Console) -> int:
    url = _whole(arguments.name)
    async with _progress(client, url):
        found = await client.pull(url)
    if arguments.json:
        print(json.dumps(found))
        return 0
    console.print(
        f"{decimal(found['bytes'])} in {found['seconds']:.2f} s: "
        f"{decimal(found['from_origin_bytes'])} from the origin, "
        f"{decimal(found['from_peers_bytes'])} from peers"
    )
    return 0


@contextlib.asynccontextmanager
async def _progress(client: AgentClient, url: str) -> AsyncIterator[None]:
    """Bars on a terminal for the time of the block: what came from where."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(
        *columns, TransferSpeedColumn(), TimeRemainingColumn(), console=console, transient=True
    ) as bars:
        looking = asyncio.create_task(_look(client, url, bars))
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.wait({looking})


async def _look(client: AgentClient, url: str, bars: Progress) -> None:
    verified = bars.add_task(escape(url.rstrip("/").rpartition("/")[2] or url), total=None)
    origin = bars.add_task("  from the origin", total=None)
    peers = bars.add_task("  from peers", total=None)
    while True:
        with contextlib.suppress(CacheError):  # the pull itself says what is wrong
            now = await client.pull_progress(url)
            total = now["bytes_total"]
            bars.update(verified, completed=now["bytes_verified"], total=total)
            bars.update(origin, completed=now["from_origin_bytes"], total=total)
            bars.update(peers, completed=now["from_peers_bytes"], total=total)
        await asyncio.sleep(_LOOK_S)


async def _ls(client: AgentClient, arguments: argparse.Namespace, console: Console) -> int:
    items = await client.held()
    if arguments.json:
        print(json.dumps(items))
        return 0
    rows = [("SIZE", "MEMORY", "DISK", "FILES", "IN USE", "NAME")]
    for one in items:
        sizes = (decimal(one[name]) for name in ("bytes", "memory_bytes", "disk_bytes"))
        used = "yes" if one["pinned"] else "no"
        rows.append((*sizes, str(one["files"]), used, one["name"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for *cells, name in rows:
        cells = [cell.rjust(width) for cell, width in zip(cells, widths, strict=False)]
        console.print("  ".join([*cells, name]), markup=False)
    return 0


async def _verify(client: AgentClient, arguments: argparse.Namespace, console: Console) -> int:
    found = await client.verify()
    if arguments.json:
        print(json.dumps(found))
    else:
        console.print(f"read {decimal(found['bytes'])} of {found['blobs']} files")
    if found["bad"]:
        raise PlatformError(
            f"{len(found['bad'])} of {found['blobs']} files were damaged and are dropped: "
            + ", ".join(found["bad"])
        )
    return 0


async def _rm(client: AgentClient, arguments: argparse.Namespace, console: Console) -> int:
    freed = await client.remove(_whole(arguments.name))
    return _say(arguments, console, freed, "became free")


async def _warm(client: AgentClient, arguments: argparse.Namespace, console: Console) -> int:
    name = _whole(arguments.name)
    async with _progress(client, name):
        brought = await client.warm(name)
    return _say(arguments, console, brought, "are in memory")


def _say(arguments: argparse.Namespace, console: Console, count: int, what: str) -> int:
    if arguments.json:
        print(json.dumps({"bytes": count}))
    else:
        console.print(f"{decimal(count)} {what}")
    return 0


def _whole(name: str) -> str:
    """A path as the agent must see it, which is in another folder; else as it is."""
    if not name.strip():
        raise PlatformError("the name is empty: give a URL, a path or a digest")
    is_path = "://" not in name and (name.startswith((".", "~", "/")) or Path(name).exists())
    return str(Path(name).expanduser().absolute()) if is_path else name
