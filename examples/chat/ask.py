"""Asks the chat service with OpenAI's own library: python ask.py URL QUESTION"""

from __future__ import annotations

import sys

from openai import OpenAI


def main(url: str, question: str) -> None:
    client = OpenAI(
        base_url=f"{url}/v1", api_key="none"
    )  # a deployment needs none unless it is protected
    (model,) = client.models.list()
    chunks = client.chat.completions.create(
        model=model.id,
        messages=[{"role": "user", "content": question}],
        stream=True,
        temperature=0,
    )
    for chunk in chunks:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
