"""The chat example with a real model: a tiny Llama, made here, in place of one from the Hub."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHAT = Path(__file__).parent.parent / "examples" / "chat"
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, and a token for each byte."""
    # Here, as every worker of a test run imports this file, and these take seconds to import.
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("llama")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE({letter: n for n, letter in enumerate(alphabet)}, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, chat_template=TEMPLATE)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(alphabet),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def chat(files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's model, imported as its service does."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(CHAT)
    from hugging_face import HuggingFaceChat  # type: ignore[import-not-found]

    yield HuggingFaceChat("tiny/llama", str(files))
    for name in {"answer", "hugging_face", "protocol"} - before:
        del sys.modules[name]


def request(**fields: Any) -> Any:
    from protocol import ChatRequest  # type: ignore[import-not-found]

    messages = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hé?"}]
    return ChatRequest(**{"model": "tiny/llama", "messages": messages, "temperature": 0} | fields)


async def text_of(answer: Any) -> str:
    return "".join([piece async for piece in answer.pieces()])


async def test_it_says_what_the_model_says_and_counts_its_tokens(chat: Any) -> None:
    answer = chat.answer(request(max_tokens=40))
    text = await text_of(answer)
    prompt = "system: Be kind.\nuser: Hé?\nassistant:".encode()
    assert answer.prompt_tokens == len(prompt)
    assert (answer.completion_tokens, answer.finish_reason) == (40, "length")
    assert text
    assert await text_of(chat.answer(request(max_tokens=40))) == text
    sampled = [await text_of(chat.answer(request(temperature=1, seed=n))) for n in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]


async def test_it_ends_where_the_model_ends_it(chat: Any) -> None:
    model = chat._model
    prompt = chat._tokenizer("system: Be kind.\nuser: Hé?\nassistant:", return_tensors="pt")
    said = model.generate(**prompt, do_sample=False, max_new_tokens=20)[0, -20:].tolist()
    model.generation_config.eos_token_id = said[-1]
    answer = chat.answer(request())
    await text_of(answer)
    assert answer.finish_reason == "stop"
    assert answer.completion_tokens == said.index(said[-1]) + 1


async def test_messages_that_do_not_fit_are_refused(chat: Any) -> None:
    from answer import TooLong  # type: ignore[import-not-found]

    with pytest.raises(TooLong, match="at most 512 tokens, and the messages have 617"):
        chat.answer(request(messages=[{"role": "user", "content": "x" * 600}]))


async def test_it_stops_when_its_reader_leaves(chat: Any) -> None:
    steps = []
    chat._model.register_forward_hook(lambda *_: steps.append(1))
    pieces = chat.answer(request(max_tokens=400)).pieces()
    await anext(pieces)
    await pieces.aclose()
    await asyncio.get_running_loop().shutdown_default_executor()  # returns when its thread ends
    assert len(steps) < 400


async def test_what_the_model_raises_reaches_the_reader(chat: Any) -> None:
    def fails(*_: Any) -> None:
        raise MemoryError("no memory left")

    chat._model.register_forward_hook(fails)
    with pytest.raises(MemoryError, match="no memory left"):
        await text_of(chat.answer(request()))
