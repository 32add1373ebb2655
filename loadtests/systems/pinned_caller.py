"""A caller whose connection one certain gateway has taken, of several that share a port."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

HOST = "127.0.0.1"
TRIES = 100
"""Connections until the gateway takes one: of two each takes about half."""
_SOCKET = re.compile(r"socket:\[(\d+)\]")


class PinnedCaller:
    """It sends one request after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def of(cls, port: int, gateway: int) -> Self:
        """`gateway` is a process id. Raises LookupError where it takes no connection."""
        for _ in range(TRIES):
            reader, writer = await asyncio.open_connection(HOST, port)
            caller = cls(reader, writer)
            await caller.ask("/readyz")  # once it is answered, it was accepted
            if _has(gateway, port, writer.get_extra_info("sockname")[1]):
                return caller
            caller.close()
        raise LookupError(f"the gateway {gateway} takes no connection of port {port}")

    async def ask(self, target: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
        """The status, and which version has answered; a POST where there is a body."""
        fields = {"Host": "a", "Content-Type": "application/json", "Content-Length": len(body)}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{'POST' if body else 'GET'} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        found = _fields(head)
        await self._reader.readexactly(int(found.get("content-length", 0)))
        return int(head.split()[1]), found.get("hotplate-version", "")

    def close(self) -> None:
        self._writer.close()


def _fields(head: str) -> Mapping[str, str]:
    lines = (line.partition(":") for line in head.split("\r\n")[1:] if line)
    return {name.lower(): value.strip() for name, _, value in lines}


def _has(pid: int, port: int, peer: int) -> bool:
    """Whether a process has that end of the connection."""
    rows = (
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    )
    ends = f":{port:04X}", f":{peer:04X}"
    inodes = {row[9] for row in rows if row[1].endswith(ends[0]) and row[2].endswith(ends[1])}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found = _SOCKET.fullmatch(os.readlink(entry))
            if found and found[1] in inodes:
                return True
    return False
