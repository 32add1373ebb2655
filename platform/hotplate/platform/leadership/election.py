"""Which of several control planes acts; pure.

As in the leader election of Kubernetes
(https://pkg.go.dev/k8s.io/client-go/tools/leaderelection), nobody compares moments of two clocks.
One that waits takes over when the term has stayed as it was for all of its length on its own
steady clock; the one that acts counts that length from before it asked for it, so its own is over
first. The database's clock says only whether a term that is seen for the first time is still on:
after a night nobody waits. On one machine the end of the process that acts is seen at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hotplate.platform.store.records import Term

TERM_S = 10.0
"""How long one that has stopped still counts as the one that acts."""
RENEW_S = 2.5
"""So two renewals may fail, or take their time."""
LOOK_S = 1.0
"""How often one that waits looks."""
RIVAL_S = 30.0
"""One that has not looked for so long is gone."""
LATE_S = 5.0
"""An alarm comes as late as this in a process that hangs, or was stopped."""


@dataclass(frozen=True)
class Watch:
    """The term as one that waits has seen it last."""

    term: Term
    since: float
    """Since when it is so, on the steady clock of the one that waits, seconds."""
    looks: int = 1
    renewed: bool = False
    """Whether it was seen to change: whoever has it lives."""

    def after(self, term: Term, now: float) -> Watch:
        """After one more look."""
        if _version(term) == _version(self.term):
            return Watch(term, self.since, self.looks + 1, self.renewed)
        return Watch(term, now, self.looks + 1, renewed=True)

    def may_take(self, now: float, runs: bool | None) -> bool:
        """Whether nobody can be acting. `runs`: whether the process that has the term does; None =
        that cannot be told from here."""
        if not self.term.holder or runs is False:
            return True
        if self.looks == 1 and runs is None:
            return self.term.left_s <= 0
        return now - self.since >= TERM_S


@dataclass(frozen=True)
class Tenure:
    """The term of one that acts, as it knows it."""

    epoch: int
    until: float
    """When it may be over, steady seconds: counted from before it was asked for."""
    contested: bool = False
    """Whether another one waits. Without one, a database that is away for longer ends no term: who
    would act instead?"""

    @staticmethod
    def begun(epoch: int, asked_at: float, rival_s: float) -> Tenure:
        """From the moment at which it, or its renewal, was asked for; another one has looked
        `rival_s` ago."""
        return Tenure(epoch, asked_at + TERM_S, rival_s <= RIVAL_S)

    def rung(self, now: float) -> Tenure | None:
        """What becomes of it when `until` is past: it is lost (None) if another one waits, or if
        this is noticed so late that the process must have been stopped, and who knows since."""
        late = now - self.until > LATE_S
        return None if self.contested or late else replace(self, until=now + TERM_S)


def _version(term: Term) -> tuple[int, str, int]:
    return term.epoch, term.holder, term.renewals
