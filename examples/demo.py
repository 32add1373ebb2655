"""`make demo`: from nothing to a served model, through Hotplate's public faces only.

Starts the platform, deploys `examples/embedder` with the stock `bentoml` client, calls it, puts
load on it, waits until it sleeps, wakes it, and stops everything. Exit status 0 only if every
step did what it should.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from hotplate.platform.commands.pages.deployment import phase_chart

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "demo"
EMBEDDER = ROOT / "examples" / "embedder"
BIN = Path(sys.executable).parent
PORT = int(os.environ.get("HOTPLATE_DEMO_PORT", "7070"))
API = f"http://127.0.0.1:{PORT}"
SENTENCES = [
    "A cat sits on the mat.",
    "A kitten rests on a rug.",
    "Interest rates rose again in March.",
]
LOAD_S = 40
LONGEST_LOAD_S = 120
"""On a busy machine a second replica takes longer to start; the load waits for it that long."""
CLIENTS = 12

console = Console(highlight=False)


class Failed(Exception):
    """A step did not do what it should."""


def main() -> int:
    began = time.monotonic()
    try:
        with platform_running() as pid:
            run(pid)
            left = processes_of(pid)
        still = [p for p in left if alive(p)]
        if still:
            raise Failed(f"{len(still)} processes are left running: {still}")
    except Failed as failure:
        console.print(f"\n[red]the demo failed:[/] {failure}")
        return 1
    except OSError as error:
        console.print(f"\n[red]the demo failed:[/] the platform does not answer: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"Nothing is left running. The whole demo took {time.monotonic() - began:.0f} s.")
    return 0


def run(pid: int) -> None:
    say("1. Save the model and log in, with the stock client")
    bentoml("cloud", "login")
    call([sys.executable, "save_model.py"], EMBEDDER)

    say("2. bentoml deploy: build, push the model (90 MB) and the service, start a replica")
    started = time.monotonic()
    bentoml("deploy", ".", "-f", "deployment.yaml", cwd=EMBEDDER, show=True)
    deployed_s = time.monotonic() - started
    url = deployment()["url"]
    vectors = embed(url, SENTENCES)
    answered_s = time.monotonic() - started
    console.print(
        f"   deployed in {deployed_s:.1f} s, first answer after {answered_s:.1f} s: {url}"
    )

    say("3. Three sentences and how alike they are")
    show_similarities(vectors)

    say("4. The first cold start, by phases (they overlap)")
    show_cold_start()

    say(f"5. {CLIENTS} clients ask for {LOAD_S} s")
    most = show_load(url)
    if most < 2:
        raise Failed(f"the load was served by {most} replica; more were expected")

    say("6. No more requests: it falls asleep")
    show_sleep()

    say("7. One request wakes it")
    started = time.monotonic()
    woken = embed(url, SENTENCES)
    console.print(f"   answered after {time.monotonic() - started:.1f} s, from zero replicas")
    if max(abs(a - b) for a, b in zip(vectors[0], woken[0], strict=True)) > 1e-4:
        raise Failed("the woken replica gives another embedding than the first one")
    show_cold_start()
    bentoml("deployment", "delete", "embedder")


@contextmanager
def platform_running() -> Iterator[int]:
    """`hotplate up` on data of its own, stopped by Ctrl-C at the end."""
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
    """Forget the last demo, but for the built environments and what they are made from: they take
    the longest to make."""
    (HOME / "data").mkdir(parents=True, exist_ok=True)
    shutil.rmtree(HOME / "bentoml", ignore_errors=True)
    for path in (HOME / "data").iterdir():
        if path.is_dir() and path.name not in ("environments", "packages"):
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


def bentoml(*arguments: str, cwd: Path = ROOT, show: bool = False) -> None:
    call([str(BIN / "bentoml"), *arguments], cwd, show=show)


def call(command: list[str], cwd: Path, show: bool = False) -> None:
    """Run a command; its output is shown line by line, or only when it fails."""
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
    """Made by `hotplate up`; in no argument, where every user of the machine could read it."""
    return (HOME / "data" / "admin-token").read_text().strip()


def deployment() -> dict[str, Any]:
    found: dict[str, Any] = ask("")
    return found


def ask(path: str) -> Any:
    """What the platform says of the deployment."""
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


def show_similarities(vectors: list[list[float]]) -> None:
    def alike(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    for number, sentence in enumerate(SENTENCES):
        row = "  ".join(f"{alike(vectors[number], other):5.2f}" for other in vectors)
        console.print(f"   {row}   {sentence}")
    if not alike(vectors[0], vectors[1]) > alike(vectors[0], vectors[2]) + 0.2:
        raise Failed("the two sentences about cats should be the most alike")


def show_cold_start() -> None:
    last = ask("/cold_starts?count=1")[0]
    for line in phase_chart(last["phases"]):
        console.print(f"   {line}")


def show_load(url: str) -> int:
    """Put load on the deployment and draw requests and replicas; the most replicas seen."""
    stop = threading.Event()
    counts = {"answered": 0, "failed": 0}
    lock = threading.Lock()
    text = [" ".join(SENTENCES * 4)] * 8

    def client() -> None:
        while not stop.is_set():
            try:
                embed(url, text)
                outcome = "answered"
            except Failed:
                outcome = "failed"
            with lock:
                counts[outcome] += 1

    threads = [threading.Thread(target=client, daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    most = before = 0
    for second in range(0, LONGEST_LOAD_S, 2):
        if second >= LOAD_S and most > 1:
            break
        time.sleep(2)  # the chart has a line every two seconds
        state = deployment()["live"]
        ready = sum(replica["state"] == "ready" for replica in state["replicas"])
        most = max(most, ready)
        service = state["services"][0]
        rate, before = (counts["answered"] - before) / 2, counts["answered"]
        bar = "█" * ready + "░" * (len(state["replicas"]) - ready)
        console.print(
            f"   {second + 2:3d} s  {rate:6.1f} answers/s  {service['in_flight']:3d} in flight "
            f"{service['queued']:3d} queued  replicas {bar:4} {service['reason']}",
            soft_wrap=True,
        )
    stop.set()
    for thread in threads:
        thread.join(120)
    console.print(f"   {counts['answered']} answered, {counts['failed']} failed")
    if counts["failed"]:
        raise Failed(f"{counts['failed']} requests failed under load")
    return most


def show_sleep() -> None:
    started = time.monotonic()

    def asleep() -> bool:
        state = deployment()
        count = len(state["live"]["replicas"])
        console.print(
            f"   {time.monotonic() - started:3.0f} s  {count} replicas, {state['status']}"
        )
        return state["status"] == "scaled-to-zero" and count == 0

    wait_until(asleep, 60, lambda: "it does not fall asleep", pause_s=2)


def wait_until(
    condition: Any, limit_s: float, complaint: Any, process: Any = None, pause_s: float = 0.2
) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        dead = process is not None and process.poll() is not None
        if dead or time.monotonic() > deadline:
            raise Failed(complaint())
        time.sleep(pause_s)  # what is waited for happens elsewhere and tells nobody here


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


def tail(path: Path, lines: int = 5) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def say(text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


if __name__ == "__main__":
    sys.exit(main())
