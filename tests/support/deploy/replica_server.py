"""A replica's process for tests: a small HTTP server on the inherited socket.

Its job (standard input) has the knobs: `ready_after_s`, `broken` (a path: exits with 3 while that
exists), `ignores_sigterm`, `child` (starts a process that ignores SIGTERM), `lines` (log lines),
`log_mib` (as much log at once), `lists` (notes what it sees in that folder),
`daemon` (double-forks one; "bare": with an empty environment),
`bomb` (so many generations of children that each fork twice), `eats_mib` (takes that memory before
it is ready, in a child if `eats_in_child`), `spins` (starts a process that wants all of one CPU).
It answers 503 while a file `unready` is in its directory or with `refuses`, and nothing while there
is one named `deaf`; it exits with 0 when there is one named `done`. It reads what its template has
left in `sys.hoard` when there is one named `reads`, and writes to it when there is one named
`writes`; either is then renamed to `hoarded`.
"""

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path


def main() -> None:
    job = json.load(sys.stdin)
    folder = Path(os.environ["HOTPLATE_REPLICA_DIR"])
    for line in range(job.get("lines", 1)):
        print(f"line {line}", flush=True)
    if job.get("broken") and Path(job["broken"]).exists():
        print("it is broken", file=sys.stderr)
        sys.exit(3)
    if job.get("child"):
        (folder / "child").write_text(str(start_child()))
    if job.get("lists"):
        (folder / "listed").write_text(json.dumps(os.listdir(job["lists"])))
    if job.get("daemon"):
        start_daemon(folder, bare=job["daemon"] == "bare")
    if job.get("bomb"):
        explode(folder, job["bomb"])
    if job.get("spins"):
        (folder / "spinning").write_text(str(start_spinning()))
    for _ in range(job.get("log_mib", 0)):
        sys.stdout.write(("x" * 1023 + "\n") * 1024)
    sys.stdout.flush()
    if job.get("eats_mib"):
        eat(job["eats_mib"], job.get("eats_in_child", False))
    if job.get("ignores_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    select.select([], [], [], job.get("ready_after_s", 0))
    (folder / "seen.json").write_text(json.dumps(dict(os.environ)))
    serve(
        socket.socket(fileno=int(os.environ["HOTPLATE_LISTEN_FD"])),
        folder,
        refuses="refuses" in job,
    )


def start_child() -> int:
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # its own group: only the session still ties it to us
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()
    return child


def start_spinning() -> int:
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        while True:
            pass
    return child


def start_daemon(folder: Path, bare: bool) -> None:
    """A grandchild in a session of its own, whose parent is gone."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            program = "import os, signal; open('daemon', 'w').write(str(os.getpid()))\n"
            program += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile 1: signal.pause()"
            os.chdir(folder)
            environment = {} if bare else dict(os.environ)
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", program], environment)
        os._exit(0)
    os.wait()
    while not (folder / "daemon").exists() or not (folder / "daemon").read_text():
        select.select([], [], [], 0.01)


def explode(folder: Path, generations: int) -> None:
    if os.fork() == 0:
        os.setsid()
        for _ in range(2 * generations):
            os.fork()
        with open(folder / "bombs", "a") as file:
            file.write(f"{os.getpid()}\n")
        while True:
            signal.pause()
    while (
        not (bombs := folder / "bombs").exists() or len(bombs.read_text().split()) < 4**generations
    ):
        select.select([], [], [], 0.01)


KEPT: list[bytes] = []
"""What it has eaten: whoever only watches does not see what is given back at once."""


def eat(mib: int, in_child: bool) -> None:
    if in_child and os.fork():
        return
    for _ in range(mib):
        KEPT.append(b"x" * (1 << 20))
    while in_child:
        signal.pause()


def use_hoard(write: bool) -> None:
    hoard = sys.hoard  # type: ignore[attr-defined]  # a template's knob has made it
    for offset in range(0, len(hoard), 4096):
        if write:
            hoard[offset] = 1
        assert hoard[offset]


def serve(listener: socket.socket, folder: Path, *, refuses: bool) -> None:
    while True:
        connection, _ = listener.accept()
        connection.recv(65536)
        while (folder / "deaf").exists():
            select.select([], [], [], 0.01)
        if (folder / "done").exists():
            print("that was all", flush=True)
            sys.exit(0)
        for name in ("reads", "writes"):
            if (folder / name).exists():
                use_hoard(write=name == "writes")
                (folder / name).rename(folder / "hoarded")
        unready = refuses or (folder / "unready").exists()
        status = "503 Not Ready" if unready else "200 OK"
        with suppress(BrokenPipeError), connection:  # whoever asked may have left
            connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())


main()
