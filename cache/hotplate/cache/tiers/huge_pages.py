"""Which pages memory is taken in: huge ones, unless those are slow to come."""

from __future__ import annotations

SLOW_S_PER_BYTE = 1.5e-3 / (1 << 20)
"""Processor time. Huge pages take 0.1 ms per MiB and small ones 1 ms; huge pages that the host of a
virtual machine has taken back meanwhile take 4 ms, and such a machine has mostly those."""

SMALL_PARTS = 64
"""How many parts come in small pages before huge ones are tried again."""


class HugePages:
    """Decides by the time that the last huge pages took. A race between threads costs one try."""

    def __init__(self) -> None:
        self._small_parts = 0

    def huge(self) -> bool:
        """Whether the next part is to be tried in huge pages."""
        if not self._small_parts:
            return True
        self._small_parts -= 1
        return False

    def took(self, cpu_s: float, size_bytes: int) -> None:
        """A part in huge pages took that much processor time."""
        if cpu_s > SLOW_S_PER_BYTE * size_bytes:
            self._small_parts = SMALL_PARTS
