"""Which topics a stream may name."""

from __future__ import annotations

import pytest

from hotplate.platform.errors import Invalid
from hotplate.platform.live.topics import Topic, topics_of


def test_topics_are_named_once_each() -> None:
    text = "deployments,deployment:chat,logs:chat,logs:chat/r-1,events,platform,events,"
    assert topics_of(text) == (
        Topic("deployments"),
        Topic("deployment", "chat"),
        Topic("logs", "chat"),
        Topic("logs", "chat", "r-1"),
        Topic("events"),
        Topic("platform"),
    )
    assert ",".join(map(str, topics_of(text))) == text.removesuffix(",events,")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "deployment",
        "deployment:",
        "deployment:a/b",
        "deployments:a",
        "logs",
        "logs:",
        "logs:a/",
        "platform:a",
        "secrets",
        "events\n",
        "logs:" + "a" * 300,
        ",".join(f"logs:a{n}" for n in range(17)),
    ],
)
def test_what_is_no_topic_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"^topics: "):
        topics_of(text)
