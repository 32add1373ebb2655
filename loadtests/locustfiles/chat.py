"""Users of chat completions as OpenAI's API has them.

    locust -f chat.py --host URL --model NAME --prompt "Why is the sky blue?" --stream
    locust -f chat.py --host URL --payload requests.jsonl

Streamed, FIRST is the time to the first token, and BETWEEN that between two. What `--payload` has
stands above the other options.
"""

from __future__ import annotations

import json
from typing import Any

from locust import events, task
from locust.argument_parser import LocustArgumentParser

from deployment_user import succeeded
from stream_user import StreamUser


@events.init_command_line_parser.add_listener
def add_chat_options(parser: LocustArgumentParser, **_: Any) -> None:
    parser.set_defaults(route="/v1/chat/completions")
    parser.add_argument("--model", default="default", help="the model that answers")
    parser.add_argument("--prompt", default="Hello", help="what the user says")
    parser.add_argument("--max-tokens", type=int, default=64, help="the longest answer")
    parser.add_argument("--stream", action="store_true", help="have the answer token by token")


class ChatUser(StreamUser):
    @task
    def chat(self) -> None:
        given = self.environment.parsed_options
        request = {
            "model": given.model,
            "messages": [{"role": "user", "content": given.prompt}],
            "max_tokens": given.max_tokens,
            "stream": given.stream,
        } | json.loads(self.payload())
        body = json.dumps(request).encode()
        if request["stream"]:
            self.read(body, _has_text)
            return
        with self.ask(self.route, body) as answer:
            if succeeded(answer) and not answer.json().get("choices"):
                answer.failure("the answer has no choices")


def _has_text(data: bytes) -> bool:
    """Whether a chunk brings text: the first one often has a role alone, the last one the reason.

    Raises ValueError where it is an error."""
    chunk = json.loads(data)
    if "error" in chunk:
        raise ValueError(f"the stream has an error: {chunk['error']}")
    return any(choice.get("delta", {}).get("content") for choice in chunk.get("choices", ()))
