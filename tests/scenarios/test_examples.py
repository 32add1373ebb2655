"""The examples, as their READMEs say: deployed by the stock client and called."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.readme_steps import steps_of, type_in
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop, deployed
from tests.support.imported_later import imported_later
from tests.support.services.calling import call
from tests.support.services.shapes import most_at_once

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletionMessageParam
else:
    openai = imported_later("openai")

pytestmark = pytest.mark.client

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
STORY: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me a story."}]


@contextmanager
def as_written(name: str, platform: AnyPlatform, laptop: Laptop) -> Iterator[tuple[str, str]]:
    """The URL of an example that is deployed by the first block of its README, and what that
    printed."""
    deploy, *_ = steps_of(EXAMPLES / name / "README.md")
    try:
        said = asyncio.run(type_in(deploy.command, EXAMPLES / name, laptop, platform))
        yield asyncio.run(platform.url_of(name)), said
    finally:
        asyncio.run(platform.delete(name))


@pytest.fixture(scope="module")
def hello(platform: AnyPlatform, laptop: Laptop) -> Iterator[str]:
    """It is the first with its environment; how that is built `test_shown` looks at, as what takes
    less than 3 s is not shown."""
    with as_written("hello", platform, laptop) as (url, _):
        events = asyncio.run(platform.ask("hello", "/events"))
        assert [event["kind"] for event in events].count("Building") == 1
        yield url


@pytest.fixture(scope="module")
def chat(platform: AnyPlatform, laptop: Laptop) -> Iterator[str]:
    with as_written("chat", platform, laptop) as (url, _):
        yield url


@pytest.fixture(scope="module")
def pipeline(platform: AnyPlatform, laptop: Laptop) -> Iterator[str]:
    with as_written("pipeline", platform, laptop) as (url, _):
        yield url


@pytest.fixture
async def client(chat: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{chat}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("name", ["hello", "chat", "pipeline"])
def test_what_its_readme_types_prints_what_it_says(
    name: str, platform: AnyPlatform, laptop: Laptop, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(name)
    _, *calls = steps_of(EXAMPLES / name / "README.md")
    assert any(step.output for step in calls)
    for step in calls:
        command = step.command.replace("http://127.0.0.1:7100", url)
        step.check(asyncio.run(type_in(command, EXAMPLES / name, laptop, platform)))


# chat, by OpenAI's library --------------------------------------------------------------------


async def test_the_models_are_listed(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["small"]
    assert (await client.models.retrieve("small")).object == "model"


async def test_a_chat_is_answered_whole(client: openai.AsyncOpenAI) -> None:
    said = await client.chat.completions.create(
        model="small",
        messages=[
            {"role": "system", "content": "Answer in one sentence."},
            {"role": "user", "content": "What is a slot?"},
        ],
        temperature=0,
    )
    (choice,) = said.choices
    assert choice.message.content == "A slot is one request's place in a replica."
    assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")
    assert said.usage is not None
    assert said.usage.completion_tokens == len("A slot is one request's place in a replica.")


async def test_a_stream_says_who_speaks_why_it_ended_and_what_it_took(
    client: openai.AsyncOpenAI,
) -> None:
    stream = await client.chat.completions.create(
        model="small",
        messages=STORY,
        temperature=0,
        max_tokens=9,
        stream=True,
        stream_options={"include_usage": True},
    )
    first, *pieces, last, usage = [chunk async for chunk in stream]
    assert first.choices[0].delta.role == "assistant"
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == "Once upon"
    assert len(pieces) == 9
    assert last.choices[0].finish_reason == "length"
    assert not usage.choices
    assert usage.usage is not None
    assert usage.usage.completion_tokens == 9


async def test_an_answer_ends_before_a_stop_that_comes_in_several_pieces(
    client: openai.AsyncOpenAI,
) -> None:
    said = await client.chat.completions.create(
        model="small", messages=STORY, temperature=0, stop=["time", "upon b"]
    )
    assert said.choices[0].message.content == "Once upon a "
    assert said.choices[0].finish_reason == "stop"


async def test_chats_stream_side_by_side(platform: AnyPlatform, laptop: Laptop) -> None:
    async def story(client: openai.AsyncOpenAI) -> dict[str, float]:
        now = asyncio.get_running_loop().time
        stream = await client.chat.completions.create(
            model="small", messages=STORY, temperature=0, stream=True
        )
        times = [now() async for chunk in stream if chunk.choices[0].delta.content]
        assert len(times) > 300
        return {"began": times[0], "ended": times[-1]}

    tag = (await laptop.bentoml("build", "-o", "tag", folder=EXAMPLES / "chat")).strip()
    tag = tag.splitlines()[-1].removeprefix("__tag__:")
    async with (
        deployed(platform, laptop, tag, "chats") as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        spans = await asyncio.gather(*(story(client) for _ in range(5)))
    assert most_at_once(spans) == 5


@pytest.mark.parametrize(
    ("fields", "kind", "said"),
    [
        ({"model": "gpt-9"}, "NotFoundError", "'gpt-9' does not exist"),
        ({"messages": []}, "BadRequestError", "messages: "),
        ({"n": 2}, "BadRequestError", "n: "),
        ({"temperature": -1}, "BadRequestError", "temperature: "),
        (
            {"messages": [{"role": "user", "content": "x" * 5000}]},
            "BadRequestError",
            "at most 4096 tokens",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_wrong_is_raised_by_the_library(
    client: openai.AsyncOpenAI,
    fields: dict[str, object],
    kind: str,
    said: str,
    stream: bool,
) -> None:
    asked = {"model": "small", "messages": STORY, "stream": stream} | fields
    with pytest.raises(getattr(openai, kind)) as wrong:
        await client.chat.completions.create(**asked)  # type: ignore[call-overload]
    assert said in wrong.value.message
    assert wrong.value.type == "invalid_request_error"


async def test_a_route_that_is_not_there_is_an_error_of_the_same_form(
    client: openai.AsyncOpenAI,
) -> None:
    with pytest.raises(openai.NotFoundError) as wrong:
        await client.embeddings.create(model="small", input="text")
    assert "no POST /v1/embeddings" in wrong.value.message


# pipeline -------------------------------------------------------------------------------------


async def test_the_passage_that_answers_is_the_best(pipeline: str) -> None:
    page = """
    <head><title>hot hot hot oven</title></head><script>let hot = "oven"</script>
    <h1>The oven</h1><ul><li>Clean the oven every month.<li>Turn it off before you leave.</ul>
    <p>From cold, the oven needs ten minutes until it is hot. Then bake.</p>
    """
    found = await call(f"{pipeline}/find", page=page, question="When is the oven hot?", count=2)
    assert found[0]["text"] == "From cold, the oven needs ten minutes until it is hot. Then bake."
    assert found[0]["score"] > found[1]["score"]
    assert await call(f"{pipeline}/find", page="<p> </p>", question="?") == []


async def test_passages_that_arrive_together_are_one_batch(
    pipeline: str, platform: AnyPlatform
) -> None:
    page = "".join(f"<p>Passage number {number}.</p>" for number in range(200))
    assert len(await call(f"{pipeline}/find", page=page, question="Which?", count=5)) == 5
    logged = await platform.hotplate("logs", "pipeline", "--lines", "1000")
    sizes = [int(size) for size in re.findall(r"(\d+) texts in one batch", logged)]
    assert max(sizes) > 1
