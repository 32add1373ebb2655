"""Events of a stream, as its bytes arrive (HTML Living Standard, 9.2.6)."""

from __future__ import annotations

LAST = b"[DONE]"
"""The data by which OpenAI's servers, and those like them, say that a stream is over."""


class EventReader:
    """Splits a stream into the data of its events. Comments, and events without data, are none."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of each event that this piece completes."""
        text = self._rest + piece
        held = b""
        if b"\r" in text:
            if text.endswith(b"\r"):  # perhaps half a line's end
                text, held = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *events, rest = text.split(b"\n\n")
        self._rest = rest + held
        return [found for event in events if (found := _data(event)) not in (None, LAST)]


def _data(event: bytes) -> bytes | None:
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line[:5] == b"data:"]
    return b"\n".join(lines) if lines else None
