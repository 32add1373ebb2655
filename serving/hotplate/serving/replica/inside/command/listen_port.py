"""Where the program of a custom command listens; runs in the replica (Python >= 3.9).

The port is the author's, written into the service and into the command. A machine has it once, but
runs several replicas. So BentoML uses a port that is the replica's alone, and the program listens
there too if its command says the port; otherwise the program has a network of its own, in which the
author's port is free.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Iterable
from inspect import getattr_static
from pathlib import Path
from typing import Any, Callable

from hotplate.serving.replica.inside.command.claimed_port import ClaimedPort, claim_any
from hotplate.serving.replica.inside.command.network import Network, carried
from hotplate.serving.replica.inside.patches.hooks import BYSTANDERS

DEFAULT_PORT = 8000
"""BentoML's default."""
_BEGIN, _END = r"(?:^|(?<=[\0\s='\"(,;&|]))", r"(?![\w.-])"
"""The arguments and variables of a process, in which arguments end with NUL."""
_OPTION = (
    r"(?:-p[\0\s=]*|--?(?:(?:[\w.-]*[-_.])?(?i:port)|[\w.-]*Port)[\0\s=]+|(?:\w*_)?(?i:port)=)"
    r"['\"]?"
)
"""`--port 8000`, `--http-port=8000`, `-p 8000`, `PORT=8000`."""
_ADDRESS = r"(?:\w+://)?(?:localhost|0\.0\.0\.0|127(?:\.\d+){3}|\*|\[[\da-fA-F:]*\])?:"
"""`--bind 0.0.0.0:8000`, `-b :8000`; other machines' ports are theirs."""
_SHELL = re.compile(r"(?:^|\0|/)(?:ba|da|k|z)?sh(?:\0-\w+)*\0-\w*c\0[^\0]*")
_WORD = re.compile(r"[^\0\s'\"();&|]+")
_SERVERS = re.compile(
    r"http\.server|\b(?:vllm|sglang|uvicorn|gunicorn|hypercorn|granian|fastapi|bentoml|streamlit"
    r"|gradio|litserve|mlflow|text-generation-launcher|llama-server|tritonserver)\b"
)
_THEIRS = (3000, 8000)
"""The default ports of known programs, where `http.proxy_port` names another one."""

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "0.0.0.0", "::1")


def place_command(
    service: Any, note: Path, first: bool, texts: Iterable[str], on_lost: Callable[[], None]
) -> None:
    """Give a service's command a port of its own.

    The first worker decides and writes the port to `note`, the others read it there; with
    `replicate_process` each has a program, and a port, of its own. `texts` name the ports of
    loopback that the program may need; `on_lost` is called when it can no longer be reached.

    Raises ValueError if the command does not say its port, no network can be made, and the port is
    taken: the responses of another program would be taken for our own's. Raises OSError.
    """
    http = service.config.setdefault("http", {})
    port = int(http.get("proxy_port") or DEFAULT_PORT)
    if first or service.config.get("replicate_process"):
        claim = _kept(claim_any())
        if first:
            note.write_text(str(claim.port), encoding="utf-8")
        address = note.with_name(f"command-{claim.port}")
        _start_elsewhere(
            service, lambda command: _placed(command, port, claim, address, texts, on_lost)
        )
        to = claim.port
    else:
        to = int(note.read_text(encoding="utf-8"))
    http["proxy_port"] = to
    _lead_clients(port, to, note.with_name(f"command-{to}"))


def moved(command: list[str], port: int, to: int) -> list[str] | None:
    """The command with its port replaced, if an argument is one; None if that is not clear."""
    line = "\0".join(command)
    theirs = _THEIRS if _SERVERS.search(line) else ()
    for each in (port, *theirs):
        pattern = rf"{_BEGIN}({_OPTION}|{_ADDRESS}){each}{_END}"
        changed, times = re.subn(pattern, rf"\g<1>{to}", line)
        alone = [] if times else _alone(line, str(each))
        if len(alone) == 1:
            start = alone[0]
            changed = f"{line[:start]}{to}{line[start + len(str(each)) :]}"
        if changed != line:
            return changed.split("\0")
    return None


def _alone(line: str, port: str) -> list[int]:
    """Positions of the port as an argument, or a word of a shell's command, that is no option's
    value."""
    shell = _SHELL.search(line)
    found, before = [], ""
    for word in _WORD.finditer(line):
        start, end = word.span()
        whole = f"\0{line}\0"[start] + f"\0{line}\0"[end + 1] == "\0\0"
        scripted = shell is not None and shell.start() < start and end <= shell.end()
        if word[0] == port and (whole or scripted) and not before.startswith("-"):
            found.append(start)
        before = word[0]
    return found


def _placed(
    command: list[str],
    port: int,
    claim: ClaimedPort,
    address: Path,
    texts: Iterable[str],
    on_lost: Callable[[], None],
) -> list[str]:
    """The command that BentoML has to start, so that the program listens at the claimed port."""
    program = _expanded(command)
    command_line = moved(program, port, claim.port)
    if command_line is not None:
        return _escaped(command_line)
    try:
        network = Network(port, address, [*texts, *os.environ.values()])
    except OSError as error:
        _kept(_own_port(port, error))
        carried(address, port)
        return _escaped(program)
    BYSTANDERS.add(network.pid)
    network.when_lost(on_lost)
    print(
        f"The command does not say its port {port} (http.proxy_port), so it runs in a network of "
        "its own: out of it lead an HTTP proxy, as its variables say, and the ports of loopback "
        f"that they name. A command with '--port {port}' runs in this machine's.",
        file=sys.stderr,
    )
    return _escaped(network.command(program))


def _kept(claim: ClaimedPort) -> ClaimedPort:
    """The claim, which lasts until this process ends."""
    atexit.register(claim.close)
    return claim


def _own_port(port: int, refusal: OSError) -> ClaimedPort:
    """The author's port, if no other replica has it. Raises ValueError."""
    try:
        return ClaimedPort(port)
    except OSError:
        raise ValueError(
            f"port {port}, on which the service's command is to listen (http.proxy_port), is "
            "taken on this machine, and the command does not say it, so it cannot be given "
            f"another; nor can it have a network of its own here ({refusal}): stop what listens "
            f"there, or write the command with '--port {port}'"
        ) from None


def _start_elsewhere(service: Any, place: Callable[[list[str]], list[str]]) -> None:
    """Has BentoML start the command that `place` returns."""
    if not hasattr(service.inner, "__command__"):
        service.cmd = place(service.cmd)
        return
    written = getattr_static(service.inner, "__command__")

    def command(self: Any) -> list[str]:
        return place(written.__get__(self, type(self))())

    service.inner.__command__ = command


def _lead_clients(port: int, to: int, path: Path) -> None:
    """Redirects the clients by which BentoML reaches the command; the service may bring one
    (`self.client`)."""
    try:
        from _bentoml_impl.server import proxy

        stock = proxy.get_current_service
    except (ImportError, AttributeError):  # another BentoML's own ways
        return
    from hotplate.serving.replica.inside.command.program_client import (
        ProgramAddress,  # with libraries that bentoml brings
    )

    address = ProgramAddress(path)
    address.redirect_clients(proxy)

    def led() -> Any:
        service: Any = stock()
        client: Any = getattr(service, "client", None)
        base: Any = getattr(client, "_base_url", None)
        if getattr(base, "port", None) == port and base.host in _LOOPBACK_NAMES:
            client._base_url = base.with_port(to)
            client._connector = address.connector(getattr(client.connector, "limit", 100))
        return service

    proxy.get_current_service = led


def _expanded(command: list[str]) -> list[str]:
    from bentoml._internal.utils import expand_envs

    return [expand_envs(argument) for argument in command]


def _escaped(command: list[str]) -> list[str]:
    """Escapes an argument, because BentoML expands variables in it."""
    return [argument.replace("$", "$$") for argument in command]
