"""One of a chain: it receives a file in verified pieces and sends each on as soon as it has it.

This is the least that a fan-out can cost: no choice of peers, no requests, no second copy. It
prints `{}` when it listens, begins when it reads a line, prints its seconds when all was received
and sent on, and ends when its input does.
"""

from __future__ import annotations

import argparse
import json
import queue
import socket
import sys
import time
from threading import Thread
from urllib.parse import urlsplit

from blake3 import blake3

PIECE_BYTES = 8 << 20
SLOTS = 8
"""How many pieces it can hold: more than are ever received and not sent yet."""


class Relay:
    """Relays `size_bytes`, which it keeps only until they are sent on."""

    def __init__(self, size_bytes: int, is_last: bool) -> None:
        self._left = [PIECE_BYTES] * (size_bytes // PIECE_BYTES)
        if size_bytes % PIECE_BYTES:
            self._left.append(size_bytes % PIECE_BYTES)
        self._is_last = is_last
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._received: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        for _ in range(SLOTS):
            self._free.put(memoryview(bytearray(PIECE_BYTES)))

    def receive(self, url: str) -> None:
        where = urlsplit(url)
        with socket.create_connection((where.hostname or "", where.port or 80)) as connection:
            connection.sendall(
                f"GET {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
            )
            _read_head(connection)
            for length in self._left:
                slot = self._free.get()
                if connection.recv_into(slot[:length], 0, socket.MSG_WAITALL) < length:
                    sys.exit("the file ended too early")
                blake3(slot[:length]).digest()
                (self._free if self._is_last else self._received).put(slot)

    def send(self, listener: socket.socket) -> None:
        """Sends the pieces to the first connection."""
        connection, _ = listener.accept()
        with connection:
            _read_head(connection)
            connection.sendall(
                f"HTTP/1.1 200 OK\r\nContent-Length: {sum(self._left)}\r\n\r\n".encode()
            )
            for length in self._left:
                slot = self._received.get()
                connection.sendall(slot[:length])
                self._free.put(slot)


def _read_head(connection: socket.socket) -> None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1) or sys.exit("there is no head")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="what to receive: of the origin, or of the relay before")
    parser.add_argument("size_bytes", type=int)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--last", action="store_true")
    flags = parser.parse_args()
    relay = Relay(flags.size_bytes, flags.last)
    with socket.create_server((flags.host, flags.port)) as listener:
        print("{}", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        sending = Thread(target=relay.send, args=(listener,))
        if not flags.last:
            sending.start()
        relay.receive(flags.url)
        if not flags.last:
            sending.join()
        print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
        sys.stdin.read()  # its CPU time is read while it still runs


if __name__ == "__main__":
    main()
