"""The operator's list of peers: named outright, in a file, or behind a DNS name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from hotplate.cache.errors import CacheError
from hotplate.machine.address import Address

log = logging.getLogger(__name__)

_FILE_S = 0.5
_DNS_S = 3.0
"""How often each is read again."""


def checked(address: str) -> str:
    """Raises CacheError for anything but HOST:PORT."""
    with contextlib.suppress(ValueError):
        if Address.parse(address).port:
            return address
    raise CacheError(f"peer {address!r} is not HOST:PORT; give for instance 10.0.0.2:7900")


class Seeds:
    """Reports the list at the start, and whenever it changes."""

    def __init__(
        self,
        named: tuple[str, ...],
        source: str,
        own_port: int,
        on_change: Callable[[list[str]], None],
    ) -> None:
        """`source`: a file's path, a DNS `NAME[:PORT]` (else `own_port`), or empty.

        Raises CacheError.
        """
        self._named = [checked(one) for one in named]
        self._source = source
        self._dns_address = source if ":" in source else f"{source}:{own_port}"
        self._on_change = on_change
        self._last_warning = ""
        self.read = asyncio.Event()
        """Set once the list was read, or could not be."""
        if source and not self._is_file():
            checked(self._dns_address)

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        known: list[str] | None = None
        while True:
            found = await self._read()
            if found is not None and found != known:
                known = found
                self._on_change(self._named + found)
            self.read.set()
            if not self._source:
                return
            await asyncio.sleep(_FILE_S if self._is_file() else _DNS_S)

    def _is_file(self) -> bool:
        return "/" in self._source or Path(self._source).exists()

    async def _read(self) -> list[str] | None:
        """The list; None when it cannot be read just now, so that the last one stays."""
        if not self._source:
            return []
        try:
            if self._is_file():
                return self._valid(await asyncio.to_thread(Path(self._source).read_bytes))
            found = await self._resolve()
        except OSError as error:
            self._warn(f"cannot be read ({error.strerror}); give a file, or NAME:PORT of DNS")
            return None
        self._last_warning = ""
        return found

    async def _resolve(self) -> list[str]:
        host, port = Address.parse(self._dns_address)
        found = await asyncio.get_running_loop().getaddrinfo(host, port)
        return [str(Address(one, port)) for one in sorted({str(one[0]) for *_, one in found})]

    def _valid(self, text: bytes) -> list[str]:
        valid, warning = [], ""
        for line in text.decode(errors="replace").split():
            try:
                valid.append(checked(line))
            except CacheError as error:
                warning = str(error)
        self._warn(warning)
        return valid

    def _warn(self, warning: str) -> None:
        """Logs it once, as long as it stays the same."""
        if warning and warning != self._last_warning:
            log.warning("peers of %s: %s", self._source, warning)
        self._last_warning = warning
