"""What a page may follow; pure.

`channel` says what a reader gets next of one topic, and `cursor` how far each reader is.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotplate.platform.errors import Invalid

DEPLOYMENTS, DEPLOYMENT, LOGS, EVENTS, PLATFORM = (
    "deployments",
    "deployment",
    "logs",
    "events",
    "platform",
)
KINDS = f"{DEPLOYMENTS}, {DEPLOYMENT}:NAME, {LOGS}:NAME, {LOGS}:NAME/REPLICA, {EVENTS}, {PLATFORM}"
TOPICS_MAX = 16
NAME_CHARS = 300


@dataclass(frozen=True)
class Topic:
    kind: str
    name: str = ""
    """Of a deployment."""
    replica: str = ""
    """Empty = all of them."""

    def __str__(self) -> str:
        text = f"{self.kind}:{self.name}" if self.name else self.kind
        return f"{text}/{self.replica}" if self.replica else text


def topics_of(text: str) -> tuple[Topic, ...]:
    """Those in a list with commas, each once. Raises Invalid."""
    names = list(dict.fromkeys(filter(None, text.split(","))))
    if not names:
        raise Invalid(f"topics: there is none; name some of {KINDS}")
    if len(names) > TOPICS_MAX:
        raise Invalid(f"topics: there are {len(names)} (limit {TOPICS_MAX}); follow fewer")
    return tuple(map(_topic, names))


def _topic(text: str) -> Topic:
    kind, colon, rest = text.partition(":")
    name, _, replica = rest.partition("/")
    if len(text) > NAME_CHARS or any(ord(character) < 0x20 for character in text):
        raise Invalid(f"topics: {text!r:.80} is not the name of anything")
    if kind in (DEPLOYMENTS, EVENTS, PLATFORM) and not colon:
        return Topic(kind)
    if kind == DEPLOYMENT and name and "/" not in rest:
        return Topic(kind, name)
    if kind == LOGS and name and not rest.endswith("/"):
        return Topic(kind, name, replica)
    raise Invalid(f"topics: there is no {text!r:.80}; it is one of {KINDS}")
