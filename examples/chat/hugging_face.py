"""A chat model of the Hugging Face Hub, by transformers; on a GPU where there is one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import torch
from answer import Answer, TooLong
from protocol import ChatRequest
from transformers import AsyncTextIteratorStreamer, AutoModelForCausalLM, AutoTokenizer

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""The roles as chat templates name them."""


class HuggingFaceChat:
    """The model in a folder. Each answer is made in a thread of its own."""

    def __init__(self, name: str, folder: str) -> None:
        self.name = name
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
        self._model = model.to(device).eval()
        self._context: int = self._model.config.max_position_embeddings

    def answer(self, request: ChatRequest) -> Answer:
        """Raises TooLong."""
        prompt = self._tokenizer.apply_chat_template(
            [
                {"role": ROLES[message.role], "content": message.content}
                for message in request.messages
            ],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        )
        tokens = prompt["input_ids"].shape[1]
        if tokens >= self._context:
            raise TooLong(tokens, self._context)
        answer = Answer(tokens)
        answer.text = self._text(prompt, request, answer)
        return answer

    async def _text(
        self, prompt: Any, request: ChatRequest, answer: Answer
    ) -> AsyncGenerator[str, None]:
        streamer = Counting(self._tokenizer, skip_prompt=True, skip_special_tokens=True)
        limit = request.limit(self._context - answer.prompt_tokens)
        left = threading.Event()
        work = asyncio.create_task(
            asyncio.to_thread(self._generate, prompt, request, limit, streamer, left)
        )
        try:
            async for piece in streamer:
                answer.completion_tokens = streamer.tokens
                if piece:
                    yield piece
            ended_by_itself = await work
        finally:
            left.set()
        answer.finish_reason = "stop" if ended_by_itself else "length"

    @torch.inference_mode()
    def _generate(
        self,
        prompt: Any,
        request: ChatRequest,
        limit: int,
        streamer: Counting,
        left: threading.Event,
    ) -> bool:
        """Whether the model itself ended the answer; it also stops when the caller has left."""
        if request.seed is not None:
            torch.manual_seed(request.seed)  # for all chats: transformers has no other seed
        sampled = request.temperature > 0
        how = {"temperature": request.temperature, "top_p": request.top_p} if sampled else {}
        try:
            tokens = self._model.generate(
                **prompt.to(self._model.device),
                **how,
                do_sample=sampled,
                max_new_tokens=limit,
                streamer=streamer,
                stopping_criteria=[
                    lambda ids, _: torch.full((len(ids),), left.is_set(), device=ids.device)
                ],
            )
        except BaseException:
            streamer.end()  # otherwise its reader would wait for ever
            raise
        ends = self._model.generation_config.eos_token_id
        return int(tokens[0, -1]) in (ends if isinstance(ends, list) else [ends])


class Counting(AsyncTextIteratorStreamer):
    """A streamer that also counts the tokens of the answer."""

    tokens = -1
    """The first put is the whole prompt, and each further one is a token."""

    def put(self, value: torch.Tensor) -> None:
        self.tokens += 1
        super().put(value)
