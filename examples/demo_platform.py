"""The platform of the demo, and what talks to it: the stock client, the API and HTTP requests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "demo"
BIN = Path(sys.executable).parent
PORT = int(os.environ.get("HOTPLATE_DEMO_PORT", "7070"))
API = f"http://127.0.0.1:{PORT}"

console = Console(highlight=False)


class Failed(Exception):
    """A step did not do what it should."""


@contextmanager
def platform_running() -> Iterator[int]:
    """`hotplate up` with a data directory of its own, stopped by Ctrl-C at the end; its PID."""
    if not port_is_free():
        raise Failed(f"port {PORT} is taken; stop what uses it or set HOTPLATE_DEMO_PORT")
    clean()
    say("0. Start the platform: hotplate up")
    log = HOME / "up.log"
    command = [str(BIN / "hotplate"), "up", "--port", str(PORT), "--data", str(HOME / "data")]
    with log.open("wb") as output:
        up = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(healthy, 60, lambda: f"the platform does not start: {tail(log)}", up)
        yield up.pid
    finally:
        up.send_signal(signal.SIGINT)
        try:
            status = up.wait(90)
        except subprocess.TimeoutExpired:
            up.kill()
            status = -9
    if status != 0:
        raise Failed(f"hotplate up ended with status {status}: {tail(log)}")


def clean() -> None:
    """Removes what the last demo left, except the built environments and their packages, which take
    longest to make."""
    (HOME / "data").mkdir(parents=True, exist_ok=True)
    shutil.rmtree(HOME / "bentoml", ignore_errors=True)
    for path in (HOME / "data").iterdir():
        if path.is_dir() and path.name not in ("environments", "packages"):
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


def healthy() -> bool:
    try:
        with urllib.request.urlopen(f"{API}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def port_is_free() -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            return False
    return True


def wait_until(
    condition: Callable[[], bool],
    limit_s: float,
    complaint: Callable[[], str],
    process: subprocess.Popen[bytes] | None = None,
    pause_s: float = 0.2,
) -> None:
    """Waits for the condition. Raises Failed with the complaint at the limit, or if the process
    ends."""
    deadline = time.monotonic() + limit_s
    while not condition():
        dead = process is not None and process.poll() is not None
        if dead or time.monotonic() > deadline:
            raise Failed(complaint())
        time.sleep(pause_s)  # the condition is in another process, which sends no event


def tail(path: Path, lines: int = 5) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def processes_of(up: int) -> list[int]:
    """Every process that works in the demo's data directory, besides `up` and ourselves."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (up, os.getpid()):
            try:
                command = (entry / "cmdline").read_bytes()
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(HOME / "data").encode() in command + environ:
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def bentoml(*arguments: str, cwd: Path = ROOT, show: bool = False) -> None:
    call([str(BIN / "bentoml"), *arguments], cwd, show=show)


def call(command: list[str], cwd: Path, show: bool = False) -> None:
    """Runs a command. Its output is shown line by line, or only when it fails."""
    environ = {
        **os.environ,
        "BENTOML_HOME": str(HOME / "bentoml"),
        "BENTOML_DO_NOT_TRACK": "True",
        "BENTO_CLOUD_API_ENDPOINT": API,
        "BENTO_CLOUD_API_KEY": token(),
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    process = subprocess.Popen(
        command, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if show and line.strip() and not any(glyph in line for glyph in "█╗╝═"):
            console.print(f"   [dim]{line.rstrip()}[/]", markup=True, soft_wrap=True)
    if process.wait() != 0:
        raise Failed(f"{' '.join(command)} failed:\n{''.join(lines[-20:])}")


def token() -> str:
    """The token that `hotplate up` made, from its file: any user can read arguments with `ps`."""
    return (HOME / "data" / "admin-token").read_text().strip()


def deployment() -> dict[str, Any]:
    found: dict[str, Any] = ask("")
    return found


def ask(path: str) -> Any:
    """What the API says of the deployment `embedder`."""
    url = f"{API}/api/v1/hotplate/deployments/embedder{path}"
    request = urllib.request.Request(url, headers={"X-YATAI-API-TOKEN": token()})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def embed(url: str, sentences: list[str]) -> list[list[float]]:
    body = json.dumps({"sentences": sentences}).encode()
    request = urllib.request.Request(
        f"{url}/embed", body, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            vectors: list[list[float]] = json.load(answer)
            return vectors
    except urllib.error.HTTPError as error:
        raise Failed(f"{url}/embed answered {error.code}: {error.read()!r}") from error
    except OSError as error:
        raise Failed(f"{url}/embed gave no answer: {error}") from error


def say(text: str) -> None:
    console.print(f"\n[bold]{text}[/]")
