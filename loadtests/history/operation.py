"""What each numbered request is: whoever knows its number knows all of it, client and replica
alike.

So the client can compare every byte of its answer, and no two requests have the same body or
answer.
"""

from __future__ import annotations

from dataclasses import dataclass

ORGANIZATIONS = ("acme", "beta", "gamma")
IMPATIENT_EVERY = 61
IMPATIENT_S = 0.03
"""The time limit of some requests, which the queue often refuses."""
LEAVING_EVERY = 43
LEAVES_AFTER_S = 0.02
LONGEST_BODY_BYTES = 3000


@dataclass(frozen=True, slots=True)
class Operation:
    """One request and its answer."""

    number: int

    @property
    def may_run_twice(self) -> bool:
        return self.number % 2 == 0

    @property
    def method(self) -> str:
        return "GET" if self.may_run_twice else "POST"

    @property
    def organization(self) -> str:
        return ORGANIZATIONS[self.number // 2 % len(ORGANIZATIONS)]

    @property
    def timeout_s(self) -> float | None:
        """Its own time limit; None = the deployment's."""
        return IMPATIENT_S if self.number % IMPATIENT_EVERY == 0 else None

    @property
    def leaves_after_s(self) -> float | None:
        """After how long its client leaves without an answer; None = never."""
        return LEAVES_AFTER_S if self.number % LEAVING_EVERY == 0 else None

    @property
    def order(self) -> str:
        """The class in which it keeps its place: its organization and time limit."""
        return f"{self.organization}, {self.timeout_s or 'usual'}"

    @property
    def work_s(self) -> float:
        """How long its handler takes."""
        return (1 + self.number * 7 % 5) / 1000

    @property
    def body(self) -> bytes:
        """Of the request; a POST's alone."""
        return b"" if self.may_run_twice else self._text(31)

    @property
    def answer(self) -> bytes:
        """The body of the right answer; a POST's body comes back."""
        return self._text(17) if self.may_run_twice else self.body

    def _text(self, factor: int) -> bytes:
        return b"%d " % self.number + b"x" * (self.number * factor % LONGEST_BODY_BYTES)


def number_in(answer: bytes) -> int | None:
    """The number of the operation whose answer this is; None = of none."""
    first = answer.partition(b" ")[0]
    if first.isdigit() and answer == Operation(int(first)).answer:
        return int(first)
    return None
