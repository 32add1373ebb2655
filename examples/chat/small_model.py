"""A language model of a few kilobytes, made at the start: it has read one page about Hotplate.

Its tokens are bytes. The longest end of the text that it has read before decides which byte may
follow: stupid backoff, Brants et al., "Large Language Models in Machine Translation", 2007, without
the discount of shorter ends, because only the longest one counts.
"""

from __future__ import annotations

import asyncio
import codecs
import random
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator

from answer import Answer, TooLong
from protocol import ChatRequest

NAME = "small"
CONTEXT = 4096
"""How many bytes it reads at most."""
ORDER = 48
PACE_S = 0.01
"""The pause between two bytes, so that its answers stream like those of a larger model."""
END = ord("\n")

PAGE = """\
user: Hello!
assistant: Hello! Ask me what a replica is, or for a story.
user: What is a replica?
assistant: A replica is one running copy of a service.
user: What is a slot?
assistant: A slot is one request's place in a replica.
user: What is a cold start?
assistant: A cold start is the way from a request to a replica that is ready.
user: What is Hotplate?
assistant: Hotplate serves models, from zero replicas to many and back. You host it yourself.
user: Tell me a story.
assistant: Once upon a time a small model slept on a cold plate. Nobody asked it anything, so it \
cost nothing. One morning a request came, and the plate grew hot. The model woke, said what it \
knew, and more requests came; so there were two of it, then three. In the evening all went home, \
and the plate grew cold again. And if nobody has asked since, it still sleeps.
"""


class SmallChat:
    """The model, which is the same on every machine."""

    name = NAME

    def __init__(self) -> None:
        self._followers: dict[bytes, Counter[int]] = defaultdict(Counter)
        page = PAGE.encode()
        for place, byte in enumerate(page):
            for length in range(min(ORDER, place) + 1):
                self._followers[page[place - length : place]][byte] += 1

    def answer(self, request: ChatRequest) -> Answer:
        """Raises TooLong."""
        lines = [f"{message.role}: {message.content}\n" for message in request.messages]
        prompt = "".join([*lines, "assistant: "]).encode()
        if len(prompt) > CONTEXT:
            raise TooLong(len(prompt), CONTEXT)
        answer = Answer(len(prompt))
        answer.text = self._text(prompt, request, answer)
        return answer

    async def _text(
        self, prompt: bytes, request: ChatRequest, answer: Answer
    ) -> AsyncGenerator[str, None]:
        chance = random.Random(request.seed)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        text = prompt
        while answer.completion_tokens < request.limit(CONTEXT - len(prompt)):
            byte = self._next(text[-ORDER:], request.temperature, chance)
            if byte == END:
                return
            answer.completion_tokens += 1
            text += bytes([byte])
            if piece := decoder.decode(text[-1:]):
                yield piece
            await asyncio.sleep(PACE_S)
        answer.finish_reason = "length"

    def _next(self, context: bytes, temperature: float, chance: random.Random) -> int:
        while context not in self._followers:
            context = context[1:]
        followers = self._followers[context]
        likeliest, most = followers.most_common(1)[0]
        if temperature == 0:
            return likeliest
        weights = [(count / most) ** (1 / temperature) for count in followers.values()]
        return chance.choices(list(followers), weights)[0]
