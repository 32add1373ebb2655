"""Which requests count, and which of them got their answer."""

from __future__ import annotations

from loadtests.history.observations import Ended, History, Outcome, Repeated, Sent
from loadtests.history.operation import Operation
from loadtests.history.success import Success, lost, success_of, under_way


def history(*ended: Ended, repeated: tuple[int, ...] = ()) -> History:
    """Each of the requests was sent once, and ended so."""
    sent = [Sent(end.request, 1.0, Operation(end.request).may_run_twice, "") for end in ended]
    return History(sent, [Repeated(number, 1.5) for number in repeated], ended)


def end(number: int, outcome: Outcome = "answered") -> Ended:
    return Ended(number, 2.0, outcome, number if outcome == "answered" else None)


def test_what_may_run_twice_and_waits_counts_and_nothing_else() -> None:
    post, impatient, leaving = 3, 61 * 2, 43 * 2
    seen = history(
        end(2), end(post, "cut"), end(impatient, "refused"), end(leaving, "left"), end(4)
    )
    assert success_of(seen) == Success(asked=2, answered=2, repeated=0)
    assert list(lost(seen)) == []


def test_a_repeated_request_that_is_answered_is_no_loss() -> None:
    seen = history(end(2), end(4, "cut"), end(6), repeated=(4, 6))
    assert success_of(seen) == Success(asked=3, answered=2, repeated=1)
    assert list(lost(seen)) == [end(4, "cut")]


def test_the_answer_of_another_request_is_a_loss() -> None:
    wrong = Ended(2, 2.0, "answered", 4)
    assert success_of(history(wrong)).share == 0.0
    assert list(lost(history(wrong))) == [wrong]


def test_what_was_sent_and_never_ended_is_a_loss() -> None:
    seen = History([Sent(2, 1.0, True, "")])
    assert success_of(seen) == Success(asked=1, answered=0, repeated=0)


def test_those_under_way_are_told_from_the_others() -> None:
    before, at_the_kill, at_the_return, after = 2, 4, 6, 8
    sent_at = {before: 1.0, at_the_kill: 2.0, at_the_return: 5.0, after: 5.1, 10: 3.0}
    ends = [
        Ended(before, 2.9, "answered", before),
        Ended(at_the_kill, 3.0, "cut"),
        Ended(at_the_return, 9.0, "answered", at_the_return),
        Ended(after, 9.0, "answered", after),
    ]
    sent = [Sent(number, at, True, "") for number, at in sent_at.items()]
    repeated = [Repeated(at_the_return, 5.2), Repeated(after, 5.2)]
    felt = under_way(History(sent, repeated, ends), [(3.0, 5.0), (20.0, 21.0)])
    assert success_of(felt) == Success(asked=3, answered=1, repeated=1)
    assert success_of(under_way(felt, [])) == Success(asked=0, answered=0, repeated=0)
