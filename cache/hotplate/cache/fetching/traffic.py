"""What was read from elsewhere for one file."""

from __future__ import annotations

import threading


class Traffic:
    """Body bytes as they came, wrong bytes and repeats included. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.origin_bytes = 0
        self.peers_bytes = 0

    def add(self, *, origin_bytes: int = 0, peers_bytes: int = 0) -> None:
        with self._lock:
            self.origin_bytes += origin_bytes
            self.peers_bytes += peers_bytes
