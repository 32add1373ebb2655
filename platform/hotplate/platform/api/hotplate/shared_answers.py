"""Answers that many ask for at the same time: made once, and good for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from hotplate.machine.background import retrieve_error

FRESH_S = 1.0


class SharedAnswers:
    """By what they answer. Whoever asks must have been let see it."""

    def __init__(self, fresh_s: float = FRESH_S) -> None:
        self._fresh_s = fresh_s
        self._answers: dict[Hashable, asyncio.Task[bytes]] = {}

    async def get(self, key: Hashable, begin: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """What was begun for `key` less than `fresh_s` ago, or else what `begin` begins now.
        Raises what that raises, to all who wait for it and to nobody after them."""
        made = self._answers.get(key)
        if made is None:
            made = self._answers[key] = asyncio.create_task(begin())
            made.add_done_callback(retrieve_error)  # all who wait may leave before it fails
            asyncio.get_running_loop().call_later(self._fresh_s, self._forget, key, made)
        try:
            return await asyncio.shield(made)  # who leaves does not take it from the others
        except Exception:
            self._forget(key, made)
            raise

    def _forget(self, key: Hashable, made: asyncio.Task[bytes]) -> None:
        if self._answers.get(key) is made:
            del self._answers[key]
