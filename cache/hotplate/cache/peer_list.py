"""The operator's list of peers: named outright, in a file, or behind a DNS name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from hotplate.cache.errors import CacheError

log = logging.getLogger(__name__)

_FILE_S = 0.5
_DNS_S = 3.0
"""How often they are looked at again."""


def checked(address: str) -> str:
    """Raises CacheError for anything but HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise CacheError(f"peer {address!r} is not HOST:PORT; give for instance 10.0.0.2:7900")
    return address


class PeerList:
    """Tells of the list at the start, and whenever it changes."""

    def __init__(
        self, named: tuple[str, ...], source: str, tell: Callable[[list[str]], None]
    ) -> None:
        """`source`: a file's path, `NAME:PORT` for DNS, or empty. Raises CacheError."""
        self._named = [checked(one) for one in named]
        self._source = source
        self._tell = tell
        self.told = asyncio.Event()
        """Set once the list was told, or could not be read."""
        self._file = Path(source) if source and _is_file(source) else None
        if source and self._file is None:
            checked(source)

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        known: list[str] | None = None
        while True:
            found = await self._read()
            if found is not None and found != known:
                known = found
                self._tell(self._named + found)
            self.told.set()
            if not self._source:
                return
            await asyncio.sleep(_FILE_S if self._file is not None else _DNS_S)

    async def _read(self) -> list[str] | None:
        """None when it cannot be read just now: then it is as it was."""
        if not self._source:
            return []
        if self._file is not None:
            return await asyncio.to_thread(_lines, self._file)
        host, _, port = self._source.rpartition(":")
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, int(port))
        except OSError as error:
            log.warning("peers of %s cannot be looked up (%s)", self._source, error)
            return None
        hosts = sorted({str(address[0]) for *_, address in found})
        return [f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts]


def _is_file(source: str) -> bool:
    return "/" in source or Path(source).exists() or ":" not in source


def _lines(path: Path) -> list[str] | None:
    try:
        lines = path.read_text().split()
    except OSError as error:
        log.warning("peers of %s cannot be read (%s)", path, error.strerror)
        return None
    good = []
    for line in lines:
        try:
            good.append(checked(line))
        except CacheError as error:
            log.warning("%s: %s", path, error)
    return good
