"""A standby's process for tests; it becomes a `replica_server.py`.

Its knobs are in the standby's environment: `BROKEN` (a path: exits with 3 while that exists),
`UNUSABLE` (says so, and ends), `REFUSES` (answers so), `DEAF` (answers nothing), `SAYS` (answers
this expression).
"""

import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path


def main() -> None:
    birth = json.load(sys.stdin)
    assert Path(birth["folder"]) == Path.cwd()
    if Path(os.environ.get("BROKEN", "/no/such/file")).exists():
        print("no module is there", file=sys.stderr)
        sys.exit(3)
    channel = socket.socket(fileno=int(os.environ["HOTPLATE_STANDBY_FD"]))
    if why := os.environ.get("UNUSABLE"):
        channel.sendall(json.dumps({"unusable": why}).encode() + b"\n")
        return
    channel.sendall(b'{"warm": 1, "failed": []}\n')
    data, fds, _, _ = socket.recv_fds(channel, 1, 3)
    if not data:
        sys.exit(0)
    if os.environ.get("DEAF"):
        signal.pause()
    if says := os.environ.get("SAYS"):
        with contextlib.suppress(OSError):
            channel.sendall(eval(says))
        signal.pause()
    if os.environ.get("REFUSES"):
        channel.sendall(b'{"refused": "too late"}\n')
        sys.exit(0)
    assert Path(birth["folder"]).is_dir(), "its folder is its own until it says that it is taken"
    told, listener, log = fds
    with open(told) as file:
        file.seek(0)
        job = json.load(file)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(job["env"] | {"HOTPLATE_LISTEN_FD": str(listener), "WAS": "standby"})
    document = os.memfd_create("job")
    os.write(document, json.dumps(job["job"]).encode())
    os.lseek(document, 0, os.SEEK_SET)
    os.dup2(document, 0)
    channel.sendall(b'{"taken": true}\n')
    channel.close()
    server = Path(__file__).with_name("replica_server.py")
    exec(compile(server.read_text(), str(server), "exec"), {"__name__": "replica_server"})


main()
