"""A template's process for tests: it forks what becomes a `replica_server.py`, as `inside.template`
does.

Its knobs are in its environment: `UNFORKABLE` and `UNUSABLE` (says so, and ends), `FORKS` (Python
that runs in place of a fork's way into its walls, with `received`, the descriptors), `SAYS` (the
fork says this expression in place of who it is), `TEMPLATE` (Python that runs before it is warm).
"""

import json
import os
import signal  # noqa: F401 - for knobs
import socket
import struct
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "deploy"))
from hotplate.deploy.sandbox.launcher.joining import confine_child, enter


def main() -> None:
    birth = json.load(sys.stdin)
    assert Path(birth["folder"]) == Path.cwd()
    channel = socket.socket(fileno=int(os.environ["HOTPLATE_TEMPLATE_FD"]))
    for said in ("unforkable", "unusable"):
        if why := os.environ.get(said.upper()):
            channel.sendall(json.dumps({said: why}).encode() + b"\n")
            return
    exec(os.environ.get("TEMPLATE", ""))
    channel.sendall(b'{"warm": 1, "failed": []}\n')
    while True:
        data, received, _, _ = socket.recv_fds(channel, 1, 6)
        if not data:
            return
        try:
            between = os.fork()
        except OSError as error:
            refuse(received[0], error)
        else:
            if between == 0:
                channel.close()
                separate(received)
            os.waitpid(between, 0)
        for each in received:
            os.close(each)


def separate(received: list[int]) -> None:
    """Never returns."""
    try:
        if code := os.environ.get("FORKS"):
            exec(code)
        to, *namespaces, plan = received
        enter(namespaces)
        if os.fork():
            os._exit(0)
        os.setsid()
        confine_child(plan)
        introduce(to)
        take_job(to)
    except OSError as error:
        refuse(received[0], error)
    finally:
        os._exit(1)


def refuse(to: int, error: OSError) -> None:
    os.write(to, json.dumps({"refused": f"it could not be forked: {error}"}).encode() + b"\n")


def introduce(to: int) -> None:
    line = b'{"forked": %d}\n' % os.getpid()
    if says := os.environ.get("SAYS"):
        line = eval(says)
    me = struct.pack("iII", os.getpid(), os.getuid(), os.getgid())
    with socket.socket(fileno=os.dup(to)) as said:
        said.sendmsg([line], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, me)])


def take_job(to: int) -> None:
    """Become the replica."""
    channel = socket.socket(fileno=to)
    data, received, _, _ = socket.recv_fds(channel, 1, 3)
    if not data:
        os._exit(0)
    told, listener, log = received
    with open(told) as file:
        file.seek(0)
        job = json.load(file)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(job["env"] | {"HOTPLATE_LISTEN_FD": str(listener), "WAS": "fork"})
    document = os.memfd_create("job")
    os.write(document, json.dumps(job["job"]).encode())
    os.lseek(document, 0, os.SEEK_SET)
    os.dup2(document, 0)
    channel.sendall(b'{"taken": true}\n')
    channel.close()
    server = Path(__file__).with_name("replica_server.py")
    try:
        exec(compile(server.read_text(), str(server), "exec"), {"__name__": "replica_server"})
    except SystemExit as ended:
        sys.stdout.flush()
        os._exit(int(ended.code or 0))


main()
