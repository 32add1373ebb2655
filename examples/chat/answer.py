"""A model's answer: text that comes in pieces, and what is known of it at its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field


class TooLong(Exception):
    """The messages have more tokens than the model can read."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"This model reads at most {limit} tokens, and the messages have {tokens}. "
            "Please shorten them."
        )


@dataclass
class Answer:
    """An answer while it is made. The fields below `text` are right when `text` has ended."""

    prompt_tokens: int
    text: AsyncGenerator[str, None] = field(init=False)
    completion_tokens: int = 0
    finish_reason: str = "stop"

    async def pieces(self, stops: Iterable[str] = ()) -> AsyncIterator[str]:
        """The text, up to the first of `stops` in it. The model stops when the caller does."""
        stops = [stop for stop in stops if stop]
        held = ""  # this may be the beginning of a stop
        async with aclosing(self.text) as text:
            async for piece in text:
                held += piece
                found = [held.index(stop) for stop in stops if stop in held]
                if found:
                    self.finish_reason = "stop"
                    held = held[: min(found)]
                    break
                keep = max((_begun(held, stop) for stop in stops), default=0)
                ready, held = held[: len(held) - keep], held[len(held) - keep :]
                if ready:
                    yield ready
        if held:
            yield held


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    return next((n for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n])), 0)
