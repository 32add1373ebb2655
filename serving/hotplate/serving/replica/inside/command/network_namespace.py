"""Inside a network namespace of a replica: who makes it and carries callers in, and how a program
enters it. Python >= 3.9, standard library only.

`network_inside make FD LISTENER PORT PORT…`: FD is a Unix socket to the worker.

    →  "made", once the namespace is there      ←  one byte: who lives in it has been noted
    →  "ready" with a listening socket of loopback inside for each of the last PORTs (0 = any), or
       why there is none

From then on, until the worker's side of FD ends, it takes what arrives at LISTENER, a Unix socket
from outside, to the first PORT inside.

`network_inside enter PID PROXY -- PROGRAM…`: becomes the program, in the namespace of that process,
with the HTTP proxy at that port of its loopback.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
import sys
from typing import Any

from hotplate.serving.replica.inside.command.relay import to_port

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
"""From linux/sched.h."""
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40
"""From linux/sockios.h and linux/if.h."""
_ANSWER_BYTES = 16
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def make(channel: socket.socket, listener: socket.socket, port: int, outward: list[int]) -> None:
    """Makes the namespace, and returns when it is no longer needed."""
    try:
        _unshare()
        channel.sendall(b"made")
        if not channel.recv(_ANSWER_BYTES):
            return
        _raise_loopback()
        sockets = [socket.create_server(("127.0.0.1", each)) for each in outward]
    except OSError as error:
        channel.sendall((error.strerror or str(error)).encode())
        return
    socket.send_fds(channel, [b"ready"], [each.fileno() for each in sockets])
    for each in sockets:
        each.close()
    asyncio.run(_carry_in(channel, listener, port))


def enter(pid: int, proxy: int, program: list[str]) -> None:
    """Raises OSError."""
    for kind, flag in (("user", _NEWUSER), ("net", _NEWNET)):
        theirs = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
        if not os.path.samestat(os.fstat(theirs), os.stat(f"/proc/self/ns/{kind}")):
            _call("setns", theirs, flag)
        os.close(theirs)
    variables = dict.fromkeys(_PROXIES, f"http://127.0.0.1:{proxy}")
    variables["NO_PROXY"] = ",".join(
        ("localhost", "127.0.0.1", "0.0.0.0", "::1", socket.gethostname())
    )
    both = {**variables, **{name.lower(): value for name, value in variables.items()}}
    os.execvpe(program[0], program, {**os.environ, **both})


async def _carry_in(channel: socket.socket, listener: socket.socket, port: int) -> None:
    server = await asyncio.start_unix_server(to_port(port), sock=listener)
    channel.setblocking(False)
    async with server:
        await asyncio.get_running_loop().sock_recv(channel, _ANSWER_BYTES)


def _unshare() -> None:
    """Unshares the network, with a user namespace only if it cannot be done without."""
    try:
        _call("unshare", _NEWNET)
    except PermissionError:
        _call("unshare", _NEWUSER | _NEWNET)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", _IFF_UP | _IFF_RUNNING)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _call(name: str, *arguments: int) -> None:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def main() -> None:
    verb, *words = sys.argv[1:]
    if verb == "make":
        channel, listener, port, *outward = map(int, words)
        make(socket.socket(fileno=channel), socket.socket(fileno=listener), port, outward)
        return
    pid, proxy, _, *program = words
    try:
        enter(int(pid), int(proxy), program)
    except OSError as error:
        print(f"{program[0]} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
