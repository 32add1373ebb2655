"""A route's TLS certificate: files that may change while it serves."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence

Stamp = Sequence[tuple[int, int, int]]
"""Inode, size in bytes and time of the last change in ns, of each file."""


class Certificate:
    """A certificate (with its chain) and its key, as PEM files.

    Connections that are open keep what they began with; those that follow get what the files say
    now. A pair that cannot be used changes nothing.
    """

    def __init__(self, certificate: str, key: str) -> None:
        """`key`: empty = the key is in the certificate's file."""
        self.files = (certificate, key)
        self.context: ssl.SSLContext | None = None
        """None until a pair could be used."""
        self.error = ""
        """Why the newest pair cannot be used; empty = it is in use."""
        self._seen: Stamp | None = None

    def refresh(self) -> None:
        """Checks whether the files have changed, and takes over their content."""
        try:
            stamp = [_stamp(path) for path in self.files if path]
            if stamp == self._seen:
                return
            self._seen = stamp
            tried = self._load(_context())
        except (OSError, ssl.SSLError) as error:
            self._seen = None
            self.error = self._why(error)
            return
        if self.context is None:
            self.context = tried
        else:  # the pair was tried first, because a bad one would have been taken over in part
            self._load(self.context)
        self.error = ""

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        certificate, key = self.files
        # A key with a passphrase is refused; without this the terminal would be asked for it.
        context.load_cert_chain(certificate, key or None, password="")
        return context

    def _why(self, error: OSError) -> str:
        certificate, key = self.files
        named = f"{certificate} and {key}" if key else certificate
        kept = "; the one before it is still used" if self.context is not None else ""
        why = error.strerror if not isinstance(error, ssl.SSLError) else (error.reason or "no PEM")
        return f"the TLS certificate in {named} cannot be used: {why}{kept}"


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _stamp(path: str) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns
